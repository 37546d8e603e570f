SELECT * FROM orders;
SELECT o_status, count(*) FROM orders GROUP BY o_status ORDER BY 2 DESC;
SELECT DISTINCT o_custkey FROM orders ORDER BY o_custkey LIMIT 3 OFFSET 1;
SELECT DISTINCT ON (o_custkey) o_custkey, o_orderdate FROM orders ORDER BY o_custkey, o_orderdate DESC;
FROM orders;
FROM orders SELECT o_orderkey WHERE o_totalprice > 100;
SELECT sum(l_price * (1 - l_discount)) AS revenue FROM lines WHERE l_discount BETWEEN 0.01 AND 0.07 AND l_quantity < 24;
SELECT l_flag, sum(l_quantity), avg(l_price), sum(l_price * (1 - l_discount) * (1 + l_tax)), count(*) FROM lines
  WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY GROUP BY l_flag ORDER BY l_flag;
SELECT l_orderkey, sum(l_price * (1 - l_discount)) AS revenue, o_orderdate FROM customers, orders, lines
  WHERE c_segment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15'
  GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate LIMIT 10;
SELECT o_status, count(*) FROM orders WHERE EXISTS (SELECT 1 FROM lines WHERE l_orderkey = o_orderkey AND l_tax > 0)
  GROUP BY o_status;
SELECT c_name FROM customers WHERE c_custkey IN (SELECT o_custkey FROM orders GROUP BY 1 HAVING sum(o_totalprice) > 99);
SELECT c_name FROM customers WHERE c_custkey NOT IN (SELECT o_custkey FROM orders WHERE o_custkey IS NOT NULL);
SELECT c_segment, count(o_orderkey) FILTER (WHERE o_status = 'O') FROM customers LEFT JOIN orders ON c_custkey = o_custkey
  GROUP BY ALL ORDER BY ALL;
SELECT sum(CASE WHEN o_status = 'F' THEN 1 ELSE 0 END) AS f, sum(CASE o_status WHEN 'O' THEN 1 END) AS o FROM orders;
WITH revenue AS (SELECT l_orderkey AS k, sum(l_price) AS total FROM lines GROUP BY 1)
  SELECT * FROM revenue WHERE total = (SELECT max(total) FROM revenue);
SELECT 100.0 * sum(CASE WHEN c_segment LIKE 'B%' THEN o_totalprice ELSE 0 END) / sum(o_totalprice)
  FROM orders JOIN customers ON o_custkey = c_custkey;
SELECT c_count, count(*) FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customers LEFT OUTER JOIN orders
  ON c_custkey = o_custkey AND o_status NOT LIKE '%x%' GROUP BY c_custkey) AS t GROUP BY c_count ORDER BY 1;
SELECT l_orderkey FROM lines l WHERE l_quantity < (SELECT 0.9 * avg(l_quantity) FROM lines m WHERE m.l_orderkey = l.l_orderkey);
SELECT * FROM customers FULL JOIN orders ON c_custkey = o_custkey;
SELECT * FROM customers RIGHT JOIN orders ON c_custkey = o_custkey;
SELECT * FROM customers SEMI JOIN orders ON c_custkey = o_custkey;
SELECT * FROM customers ANTI JOIN orders ON c_custkey = o_custkey;
SELECT * FROM customers NATURAL JOIN (SELECT 1 AS c_custkey);
SELECT * FROM customers a JOIN customers b USING (c_custkey);
SELECT * FROM customers CROSS JOIN range(2);
SELECT * FROM customers POSITIONAL JOIN orders;
SELECT v.url, o.o_orderkey FROM visits v ASOF JOIN orders o ON v.ts >= o.o_orderdate::TIMESTAMP;
SELECT c_name, o.* FROM customers, LATERAL (SELECT max(o_totalprice) AS most FROM orders WHERE o_custkey = c_custkey) o;
SELECT o_orderkey FROM orders UNION SELECT l_orderkey FROM lines;
SELECT o_orderkey FROM orders UNION ALL BY NAME SELECT l_orderkey AS o_orderkey FROM lines;
SELECT o_orderkey FROM orders INTERSECT SELECT l_orderkey FROM lines;
(SELECT o_orderkey FROM orders) EXCEPT (SELECT l_orderkey FROM lines WHERE l_tax = 0) ORDER BY 1;
VALUES (1, 'a'), (2, 'b');
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(n, letter) WHERE letter = 'a';
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10) SELECT sum(n) FROM numbers;
WITH RECURSIVE tree AS (SELECT 1 AS node, NULL AS parent UNION ALL SELECT node + 1, node FROM tree WHERE node < 5)
  SELECT t.node, p.node FROM tree t LEFT JOIN tree p ON t.parent = p.node;
WITH a AS MATERIALIZED (SELECT * FROM orders), b AS NOT MATERIALIZED (SELECT * FROM a) SELECT count(*) FROM a, b;
WITH orders AS (SELECT * FROM orders WHERE o_status = 'O') SELECT count(*) FROM orders;
WITH a AS (WITH b AS (SELECT 1 AS x) SELECT x FROM b) SELECT x FROM a WHERE x IN (WITH c AS (FROM a) SELECT x FROM c);
SELECT row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderdate) AS nth, * FROM orders QUALIFY nth = 1;
SELECT o_orderkey, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w, ntile(4) OVER w
  FROM orders WINDOW w AS (ORDER BY o_totalprice DESC);
SELECT lag(o_totalprice) OVER o, lead(o_totalprice, 1, 0.0) OVER o, first_value(o_totalprice) OVER o,
  last_value(o_totalprice IGNORE NULLS) OVER o, nth_value(o_totalprice, 2) OVER o FROM orders WINDOW o AS (ORDER BY o_orderkey);
SELECT avg(o_totalprice) OVER (ORDER BY o_orderdate RANGE BETWEEN INTERVAL 7 DAYS PRECEDING AND CURRENT ROW) FROM orders;
SELECT sum(o_totalprice) OVER (ORDER BY o_orderkey ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM orders;
SELECT o_status, o_custkey, sum(o_totalprice) FROM orders GROUP BY ROLLUP (o_status, o_custkey);
SELECT o_status, o_custkey, sum(o_totalprice), grouping(o_status) FROM orders GROUP BY CUBE (o_status, o_custkey);
SELECT o_status, count(*) FROM orders GROUP BY GROUPING SETS ((o_status), ());
SELECT median(l_price), quantile_cont(l_price, 0.9), quantile_disc(l_price, [0.1, 0.5]), mode(l_flag), mad(l_price) FROM lines;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY l_price), percentile_disc(0.5) WITHIN GROUP (ORDER BY l_tax) FROM lines;
SELECT approx_count_distinct(user), approx_quantile(n, 0.5), count(DISTINCT url) FROM visits;
SELECT stddev(l_price), var_samp(l_price), corr(l_price, l_tax), regr_slope(l_price, l_tax), skewness(l_price) FROM lines;
SELECT arg_max(url, n), arg_min(url, n), max_by(url, n), any_value(url), first(url), last(url) FROM visits;
SELECT string_agg(url, ', ' ORDER BY n DESC), list(n), array_agg(DISTINCT user), histogram(user) FROM visits;
SELECT bool_and(n > 0), bool_or(n > 3), bit_and(n), product(n), count_if(n > 2), sum(DISTINCT n) FROM visits;
SELECT max(n, 2), min(n, 2), geomean(n), kahan_sum(n), entropy(user), weighted_avg(n, n) FROM visits;
SELECT date_trunc('hour', ts) AS hour, count(*) FROM visits GROUP BY 1 ORDER BY 1;
SELECT time_bucket(INTERVAL '15 minutes', ts) AS quarter, sum(n) FROM visits GROUP BY quarter;
SELECT extract(year FROM ts), extract('dow' FROM ts), date_part('epoch', ts), year(ts), month(ts), dayname(ts) FROM visits;
SELECT ts + INTERVAL 1 MONTH, ts - INTERVAL '2 days', age(ts, TIMESTAMP '2020-01-01'), last_day(ts::DATE) FROM visits;
SELECT date_diff('day', o_orderdate, DATE '2000-01-01'), o_orderdate + 3, o_orderdate - DATE '1990-01-01' FROM orders;
SELECT strftime(ts, '%Y-%m-%d %H'), strptime('2026-01-31', '%Y-%m-%d'), try_strptime('x', '%Y') FROM visits;
SELECT ts AT TIME ZONE 'UTC', timezone('Europe/Berlin', ts), epoch_ms(ts), to_timestamp(0), make_date(2026, 1, 31) FROM visits;
SELECT count(*) FROM visits WHERE ts >= now() - INTERVAL 1 DAY OR ts < current_timestamp OR ts::DATE = today();
SELECT current_date, current_timestamp, localtimestamp, TIME '12:34:56', INTERVAL '3' HOUR;
SELECT upper(url), lower(url), length(url), trim(url), substr(url, 1, 3), url[1:3], left(url, 2), right(url, 2) FROM visits;
SELECT replace(url, '.', '/'), split_part(url, '.', 2), string_split(url, '.'), concat(url, '!', n), url || n FROM visits;
SELECT concat_ws('-', url, user), lpad(user, 5, ' '), rpad(user, 5, ' '), repeat('ab', 2), reverse(url), initial FROM
  (SELECT *, user[1] AS initial FROM visits);
SELECT * FROM visits WHERE url LIKE '%com' AND url NOT LIKE 'x%' AND url ILIKE 'FOO%' AND url SIMILAR TO '.*com';
SELECT regexp_matches(url, '^f'), regexp_extract(url, '(\w+)\.(\w+)', 1), regexp_replace(url, 'o', '0', 'g') FROM visits;
SELECT url.upper().substr(1, 2), v.url.length(), starts_with(url, 'f'), contains(url, 'oo'), url ^@ 'f' FROM visits v;
SELECT format('{} has {:.2f}', user, n / 3), printf('%05d', n), md5(url), sha256(url), hash(url) % 10 FROM visits;
SELECT levenshtein(url, 'foo.com'), jaro_winkler_similarity(url, 'foo'), position('o' IN url), ascii(url), chr(65) FROM visits;
SELECT url COLLATE NOCASE FROM visits ORDER BY url COLLATE DE NULLS FIRST;
SELECT info->'name', info->>'$.name', json_extract(info, '$.tags[0]'), info->'tags'->>0 FROM documents;
SELECT json_array_length(info, '$.tags'), json_keys(info), json_type(info), json_valid('{}'), info->>'name' = 'ann' FROM documents;
SELECT unnest(from_json(info->'tags', '["VARCHAR"]')) FROM documents;
SELECT d.id, t.value FROM documents d, json_each(d.info, '$.tags') t;
SELECT fullkey, atom FROM json_tree('{"a": [1, 2]}') WHERE atom IS NOT NULL;
SELECT to_json({'a': n}), json_object('n', n), json_group_array(n), json_group_object(url, n) FROM visits GROUP BY n;
SELECT CAST('{"a": 1}' AS JSON)->'a', '[1, 2]'::JSON, json_merge_patch('{}', '{"b": 2}'), json_structure('{"a": 1}');
SELECT list_transform(range(5), x -> x * 2), list_filter([1, 2, 3], lambda x: x > 1), list_reduce([1, 2], lambda a, b: a + b);
SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1], list_sum([1, 2]), list_sort([3, 1]), list_distinct([1, 1]), list_contains([1], 1);
SELECT unnest([1, 2, 3]) AS n, unnest(['a', 'b', 'c']);
SELECT v.url, part FROM visits v, unnest(string_split(v.url, '.')) AS parts(part);
SELECT array_to_string(['a', 'b'], '-'), list_aggregate([1, 2], 'sum'), flatten([[1], [2]]), list_zip([1], ['a']), len([1]);
SELECT {'a': 1, 'b': 'x'}, struct_pack(a := 1), row(1, 2), (SELECT s.a FROM (SELECT {'a': 1} AS s)), struct_extract({'a': 1}, 'a');
SELECT MAP {'k': 1}['k'], map_keys(map([1], [2])), map_entries(MAP {'a': 1}), cardinality(MAP {'a': 1}), element_at(MAP {'a': 1}, 'a');
SELECT unnest({'a': 1, 'b': {'c': 2}}, recursive := true);
PIVOT visits ON user IN ('ann', 'bob') USING sum(n) GROUP BY url;
SELECT * FROM (PIVOT visits ON user IN ('ann', 'bob') USING sum(n) AS total, count(*) AS c GROUP BY url) ORDER BY url;
SELECT * FROM (SELECT url, user, n FROM visits) PIVOT (sum(n) FOR user IN ('ann', 'bob'));
UNPIVOT (SELECT l_orderkey, l_price, l_tax FROM lines) ON l_price, l_tax INTO NAME kind VALUE amount;
SELECT * FROM lines UNPIVOT (amount FOR kind IN (l_price, l_tax));
FROM (UNPIVOT lines ON COLUMNS('l_(price|tax)'));
SELECT COLUMNS('l_.*e') FROM lines;
SELECT min(COLUMNS(*)), max(COLUMNS(* EXCLUDE (l_flag))) FROM lines;
SELECT COLUMNS(c -> c LIKE 'l_t%') + 1 FROM lines;
SELECT * EXCLUDE (l_tax) REPLACE (l_price / 2 AS l_price) FROM lines;
SELECT * RENAME (l_tax AS tax) FROM lines;
SELECT lines.* FROM lines WHERE l_tax IS DISTINCT FROM 0 AND l_flag IS NOT NULL AND NOT (l_price IS NULL);
SELECT coalesce(NULL, n), ifnull(NULL, 1), nullif(n, 3), greatest(n, 2), least(n, 2), if(n > 2, 'a', 'b') FROM visits;
SELECT n::VARCHAR, CAST(n AS DOUBLE), TRY_CAST('x' AS INTEGER), n::DECIMAL(9, 2), '1'::TINYINT, 1::UBIGINT, 'x'::BLOB FROM visits;
SELECT n::INTEGER[], [1]::DOUBLE[], {'a': 1}::STRUCT(a BIGINT), 'a'::ENUM ('a', 'b'), MAP {'a': 1}::MAP(VARCHAR, DOUBLE)
  FROM (SELECT [1] AS n);
SELECT TIMESTAMP '2026-01-31 00:00:00', TIMESTAMPTZ '2026-01-31 00:00:00+00', DATE '2026-01-31', '1 day'::INTERVAL,
  '2026-01-31'::TIMESTAMP WITH TIME ZONE, '12:00'::TIME, gen_random_uuid()::VARCHAR, '0101'::BIT, 1e3::FLOAT, 170141183460469231731::HUGEINT;
SELECT abs(-n), round(n / 3, 2), floor(1.5), ceil(1.5), sqrt(n), power(n, 2), n ** 2, ln(n), exp(1), n % 2, n // 2, mod(n, 2) FROM visits;
SELECT pi(), sin(n), degrees(n), random() >= 0, sign(n), n & 1, n | 1, xor(n, 1), ~n, n << 1, -n, +n, 5!, @ -1 FROM visits;
SELECT * FROM generate_series(TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-02', INTERVAL 6 HOUR) t(hour);
SELECT d::DATE, coalesce(sum(n), 0) FROM range(DATE '2026-01-30', DATE '2026-02-02', INTERVAL 1 DAY) days(d)
  LEFT JOIN visits ON ts::DATE = d GROUP BY d ORDER BY d;
SELECT * FROM visits USING SAMPLE 2 ROWS;
SELECT * FROM visits TABLESAMPLE reservoir(50%) REPEATABLE (42);
SELECT * FROM visits USING SAMPLE 50 PERCENT (bernoulli);
SELECT * FROM visits ORDER BY n DESC NULLS LAST, url LIMIT 50%;
SELECT * FROM visits LIMIT (SELECT 2) OFFSET (SELECT count(*) - 3 FROM visits);
SELECT (SELECT max(n) FROM visits) - n AS behind, n = ANY (SELECT n FROM visits), n >= ALL (SELECT n FROM visits) FROM visits;
SELECT user, v.user FROM visits v WHERE user = 'ann' GROUP BY user HAVING count(*) > 0;
SELECT try(1 / 0), try(CAST('x' AS INTEGER)), error IS NULL FROM (SELECT NULL AS error);
SELECT #1, #2 FROM visits ORDER BY #1;
SELECT t.s.a, t.s['a'], (t.s).a FROM (SELECT {'a': 1} AS s) t;
SELECT "url" AS "Address of page", n AS 'amount' FROM "visits" AS "V" WHERE "V"."n" > 1;
SELECT sum(n) AS total, total / count(*) AS mean FROM visits HAVING total > 0;
SELECT * FROM Visits AS of_people WHERE OF_PEOPLE.N IN (3, 4, 5) AND (url, user) IN (SELECT url, user FROM VISITS);
SELECT typeof(n), typeof(ts), alias(n) FROM visits LIMIT 1;
SELECT count(*) FROM events WHERE _offset < 5 AND _partition = 0;
SELECT e.url, count(*) FROM events e JOIN visits v ON e.url = v.url GROUP BY e.url;
SELECT last(url ORDER BY _timestamp) FROM events WHERE _timestamp > TIMESTAMPTZ '2026-01-01 00:00:00+00';
WITH steps AS (SELECT user, url, ts, lag(url) OVER (PARTITION BY user ORDER BY ts) AS before FROM visits)
  SELECT before, url, count(*) AS times FROM steps WHERE before IS NOT NULL GROUP BY ALL ORDER BY times DESC;
WITH gaps AS (SELECT *, ts - lag(ts) OVER (PARTITION BY user ORDER BY ts) > INTERVAL 30 MINUTE AS fresh FROM visits),
  sessions AS (SELECT *, count_if(fresh) OVER (PARTITION BY user ORDER BY ts) AS session FROM gaps)
  SELECT user, session, min(ts), max(ts), count(*) FROM sessions GROUP BY user, session;
WITH firsts AS (SELECT user, min(ts)::DATE AS cohort FROM visits GROUP BY user)
  SELECT cohort, date_diff('week', cohort, ts::DATE) AS week, count(DISTINCT user) FROM visits JOIN firsts USING (user) GROUP BY ALL;
SELECT url, n, sum(n) OVER (ORDER BY n DESC) / sum(n) OVER () AS share FROM visits ORDER BY share;
SELECT width, count(*) FROM (SELECT floor(n / 2) * 2 AS width FROM visits) GROUP BY width ORDER BY width;
SELECT * EXCLUDE (v.n) FROM visits v;
SELECT * LIKE 'u%' FROM visits;
SELECT ARRAY(SELECT n FROM visits), coalesce(*COLUMNS('url|user')) FROM visits;
SELECT url GLOB 'f*', url ~ 'f.*', url !~ 'f.*', url IS NOT DISTINCT FROM 'x', n IS NOT NULL, n NOTNULL, n == 1, n <> 2 FROM visits;
WITH RECURSIVE paths(a, b) USING KEY (a) AS (SELECT 1, 2 UNION SELECT a, b + 1 FROM paths WHERE b < 5) FROM paths;
