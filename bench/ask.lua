-- What wrk asks, and how it tells what came of it: arguments are the number of rows (0: one path, as it is) and a seed.
local rows, path

function init(args)
    rows, path = tonumber(args[1]), wrk.path
    math.randomseed(tonumber(args[2]))
end

function request()
    if rows == 0 then return wrk.format("GET", path) end
    return wrk.format("GET", path .. "?url=example.com/page/" .. math.random(0, rows - 1))
end

function done(summary, latency, requests)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format('{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "errors": %d}\n', summary.requests,
        summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
