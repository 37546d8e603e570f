"""Has a module run by a fork of `tests/forkserver.py`; ends when that ends, with its exit status."""

import json
import os
import socket
import sys


def main(path: str, python: str, arguments: list[str]) -> None:
    """Runs `python -m` with these arguments, by the server at this path if it is there."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
        except OSError:  # the suite has ended
            os.execv(python, [python, "-m", *arguments])
        asked = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        message = json.dumps(asked).encode() + b"\n"
        server.sendall(message[socket.send_fds(server, [message], [0, 1, 2]) :])
        status = server.recv(1)
    os._exit(status[0] if status else 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
