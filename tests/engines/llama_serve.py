"""llama.cpp's HTTP server as the xllamacpp wheel carries it, under the flag names of llama-server.

The wheel has the server as a Python class and no executable. This is the executable: it understands the flags that our
suites use, serves until SIGTERM or SIGINT, and says why where it can't start. A suite written for it runs unchanged on a
llama-server built from source.
"""

import argparse
import os
import signal
import sys

import xllamacpp


def flags():
    parser = argparse.ArgumentParser(prog="llama_serve.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-a", "--alias")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--api-key", action="append", default=[])
    parser.add_argument("-c", "--ctx-size", type=int, default=4096, help="of all slots together")
    parser.add_argument("-np", "--parallel", type=int, default=1, help="slots")
    parser.add_argument("-b", "--batch-size", type=int, default=2048)
    parser.add_argument("-ub", "--ubatch-size", type=int, default=512)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--poll", type=int, default=50, help="how hard idle threads spin, 0 to 100")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--props", action="store_true")
    parser.add_argument("--no-slots", dest="slots", action="store_false")
    return parser.parse_args()


def parameters(given):
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    if given.alias:
        params.model_alias = {given.alias}
    params.hostnames = [given.host]
    params.port = given.port
    params.api_keys = given.api_key
    params.n_ctx = given.ctx_size
    params.n_parallel = given.parallel
    params.n_batch = given.batch_size
    params.n_ubatch = given.ubatch_size
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = given.threads
        threads.poll = given.poll
    params.endpoint_metrics = given.metrics
    params.endpoint_props = given.props
    params.endpoint_slots = given.slots
    return params


def main():
    given = flags()
    ends = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server's threads exist, so that none of them gets a signal that `sigwait` is there for.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        # The constructor listens at once (503 while loading) and comes back when the model is loaded.
        server = xllamacpp.Server(parameters(given))
    except Exception as error:
        sys.exit(f"llama_serve.py: the server can't start: {error}")
    print(f"llama_serve.py: listening on {server.listening_address}", flush=True)
    signal.sigwait(ends)
    # Tearing the server down would wait for open streams; whoever sends TERM wants it gone.
    os._exit(0)


main()
