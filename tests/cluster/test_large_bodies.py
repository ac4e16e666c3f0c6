"""Goal: large bodies do not delay other requests: the gateway sends its heartbeats, so that machines keep their
connections, and answers short requests while large bodies are read.

Method: bodies of 8 MiB that take long to parse or to tokenise, all sent at once, while another client asks for /health
and short completions. A connection counts as silent after three seconds. If the event loop parsed the bodies, each
would take about four seconds. Short requests that begin when all large bodies have been sent must end before the last
large one is answered.
"""

import http.client
import json
import threading

from cluster import Cluster, need_model

BYTES = 8 << 20
CONFIG = {"http": {"listen": "127.0.0.1:0", "bodies_bytes_max": "128MiB"}, "kv": {"memory": "32MiB"}, "threads": 1,
          "transport": {"heartbeat_ms": 300, "silence_ms": 3000}}


def filled(head, unit, tail):
    """Returns a body of exactly BYTES bytes."""
    count, rest = divmod(BYTES - len(head) - len(tail), len(unit))
    return head + unit * count + " " * rest + tail


BODIES = [  # Path, body, status.
    ("/tokenize", filled('{"prompt": "', " ", '"}'), 200),
    ("/tokenize", filled('{"prompt": "', " ", '"}'), 200),
    ("/tokenize", filled('{"prompt": "', "Once", '"}'), 200),
    ("/tokenize", filled('{"messages": [{"role": "user", "content": "', "a \\n", '"}]}'), 200),
    ("/v1/completions", filled('{"prompt": "', "Once upon a time ", '"}'), 400),  # Too long for the context.
    ("/v1/chat/completions", filled('{"messages": [{"role": "user", "content": "', "\\u0041", '"}]}'), 400),
    ("/v1/completions", filled('{"prompt": [1', ",1234567", "]}"), 400),  # No token has this id.
    ("/v1/completions", filled('{"prompt": ', "[", "]}"), 400),
    ("/v1/completions", filled('{"prompt": [', "{}, ", "{}]}"), 400),
]


class Large(threading.Thread):
    def __init__(self, cluster, path, body):
        super().__init__(daemon=True)
        self.cluster, self.path, self.body = cluster, path, body
        self.sent, self.status, self.text = threading.Event(), None, ""
        self.start()

    def run(self):
        connection = self.cluster.connect()
        try:
            connection.request("POST", self.path, self.body, self.cluster.headers)
            self.sent.set()
            reply = connection.getresponse()
            self.text = reply.read(300).decode(errors="replace")
            while reply.read(1 << 20):
                pass
            self.status = reply.status
        except (OSError, http.client.HTTPException) as error:
            self.status = f"{type(error).__name__}: {error}"
        self.sent.set()
        connection.close()


def main():
    need_model()
    short = {"prompt": "Once", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    with Cluster(CONFIG) as cluster:
        want = cluster.post("/v1/completions", short)["choices"][0]["text"]
        threads = [Large(cluster, path, body) for path, body, _ in BODIES]
        for thread in threads:
            thread.sent.wait()
        ended = 0
        while any(thread.is_alive() for thread in threads):
            assert cluster.request("GET", "/health")[0] == 200
            assert cluster.post("/v1/completions", short)["choices"][0]["text"] == want
            ended += any(thread.is_alive() for thread in threads)
        for thread, (path, body, status) in zip(threads, BODIES):
            assert thread.status == status, (path, body[:60], thread.status, thread.text)
        said = cluster.logged()
        assert "silent for" not in said and "is down" not in said, said
        assert ended >= 3, f"{ended} short requests ended before the last large one"
        up = json.loads(cluster.request("GET", "/admin/state")[2])["machines"]
        assert all(machine["connection"] == "up" for machine in up), up
    print(f"{ended} short requests ended while large bodies were read, and no connection was lost")


main()
