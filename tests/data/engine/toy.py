"""A toy engine with as much of vLLM's surface as a launch looks at: PORT [options].

--loading N    answer 503 to the first N health checks
--grandchild   start a child in a session of its own that ignores TERM; its pid goes to `pids`
--chatty       10 MB of log before it is ready: without line ends, and bytes that are no text
--mute         completions without a token
--chat         chat completions, and no others
"""
import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, options = int(sys.argv[1]), sys.argv[2:]
here = os.path.dirname(os.path.abspath(__file__))
loading = int(options[options.index("--loading") + 1]) if "--loading" in options else 0
assert os.environ["TOY"] == "1"

if "--grandchild" in options:
    child = subprocess.Popen(
        ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"], start_new_session=True
    )
    with open(os.path.join(here, "pids"), "w") as pids:
        pids.write(f"{os.getpid()}\n{child.pid}\n")

if "--chatty" in options:
    for stream in (sys.stdout.buffer, sys.stderr.buffer):
        stream.write(b"x" * 1_000_000 + b"\n")
        stream.write(b"\xff\xfe\x00 no text\n" * 10)
        for _ in range(40_000):
            stream.write(b"a line of the log " * 6 + b"\n")
        stream.flush()


def on_term(*_):
    if "TOY_ORDER" in os.environ:
        with open(os.environ["TOY_ORDER"], "a") as order:
            order.write("term\n")
    os._exit(0)


signal.signal(signal.SIGTERM, on_term)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def allowed(self):
        if not self.path.startswith("/v1/") or self.headers.get("authorization"):
            return True
        self.answer(401, {"error": "Unauthorized"})
        return False

    def do_GET(self):
        global loading
        if not self.allowed():
            return
        if self.path == "/health":
            if loading > 0:
                loading -= 1
                self.answer(503, {"error": {"message": "Loading model", "code": 503}})
            else:
                self.answer(200, b"")
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "toy", "max_model_len": 4096}]})
        elif self.path == "/version":
            self.answer(200, {"version": "0.29.0+cu132"})
        elif self.path == "/metrics":
            self.answer(
                200,
                b'vllm:num_requests_running{engine="0"} 2.0\n'
                b'vllm:num_requests_waiting{engine="0"} 1.0\n'
                b'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0\n',
                "text/plain",
            )
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.allowed():
            return
        if self.path == ("/v1/chat/completions" if "--chat" in options else "/v1/completions"):
            mute = "--mute" in options
            self.answer(
                200,
                {
                    "choices": [
                        {
                            "text": "" if mute else " hi",
                            "message": {"content": "" if mute else " hi"},
                            "finish_reason": "length",
                        }
                    ],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 0 if mute else 1},
                },
            )
        elif self.path == "/tokenize":
            self.answer(200, {"tokens": [ord(c) for c in body["prompt"]]})
        elif self.path == "/detokenize":
            self.answer(200, {"prompt": "".join(chr(i) for i in body["tokens"])})
        elif self.path == "/die":
            print("RuntimeError: told to die", file=sys.stderr, flush=True)
            os._exit(42)
        else:
            self.answer(404, {"detail": "Not Found"})


class Server(ThreadingHTTPServer):
    def server_bind(self):
        # Without the look-up of the host's name, which may take seconds.
        self.socket.setsockopt(1, 2, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "toy", port


print("Using FLASH_ATTN backend", flush=True)
Server(("127.0.0.1", port), Handler).serve_forever()
