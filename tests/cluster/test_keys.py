"""Goal: users share the machines by the weights of their keys, a single request does not wait for another user's many
requests, and urgent requests go first. Method: one prompt and one token machine with memory for a few streams. The
token machine is held at a gate until all requests of several keys wait. Then the order in which they end is checked.
Answers are of equal length, so the order is that of the queues; nothing is timed."""

import json
import threading

from cluster import Cluster, need_model, wait_until

KEYS = {"keys": [{"name": "many", "key": "sk-many-0123456789abcdef"},
                 {"name": "one", "key": "sk-one-0123456789abcdef"},
                 {"name": "heavy", "key": "sk-heavy-0123456789abcdef", "weight": 3},
                 {"name": "light", "key": "sk-light-0123456789abcdef"},
                 {"name": "operator", "key": "sk-operator-0123456789", "admin": True, "priority_best": -10}]}
BY_NAME = {key["name"]: key["key"] for key in KEYS["keys"]}


TOKENS = 20


class Crowd:
    """Requests that are sent at once, and the order in which they end."""

    def __init__(self, cluster):
        self.cluster, self.order, self.threads, self.errors = cluster, [], [], []
        cluster.hold("token-0")

    def ask(self, name, count=1, priority=0):
        """Sends this many requests, and waits until the gateway has them."""
        for index in range(count):
            self.threads.append(threading.Thread(target=self.one, args=(name, priority, index), daemon=True))
            self.threads[-1].start()
        wait_until(lambda: self.errors or json.loads(self.cluster.request("GET", "/admin/state")[2])["requests_open"]
                   == len(self.threads), "the gateway has all requests", cluster=self.cluster)

    def one(self, name, priority, index):
        prompt = [(sum(map(ord, name)) * 31 + index * 7 + k * 13) % 40000 + 100 for k in range(40)]
        body = {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "priority": priority}
        try:
            status, _, data = self.cluster.request("POST", "/v1/completions", body,
                                                   {"Authorization": f"Bearer {BY_NAME[name]}"})
            assert status == 200, data
            assert json.loads(data)["usage"]["completion_tokens"] == TOKENS
            self.order.append(name)
        except Exception as error:  # The test judges every exception.
            self.errors.append(error)

    def end(self):
        assert self.cluster.metric("cleave_requests_unrouted") > len(self.threads) / 2, "memory for too many streams"
        self.cluster.release()
        for thread in self.threads:
            thread.join(300)
        assert not self.errors and len(self.order) == len(self.threads), self.errors
        return self.order


need_model()
config = {"kv": {"memory": "4MiB", "prefix_cache": False}, "threads": 1, "server": {"api_keys_file": "keys.json"},
          "transport": {"silence_ms": 60000},
          "scheduler": {"adaptive_pools": False}}  # Otherwise the prompt machine would help the held token machine.
with Cluster(config, files={"keys.json": KEYS}, gates=True) as cluster:
    cluster.headers["Authorization"] = f"Bearer {BY_NAME['operator']}"
    crowd = Crowd(cluster)
    crowd.ask("many", 24)
    crowd.ask("one")
    crowd.ask("operator", priority=-5)
    order = crowd.end()
    print(order)
    assert order.index("one") < 9 and order.index("operator") < 9, order  # Some requests had begun before these.

    crowd = Crowd(cluster)
    crowd.ask("many", 24)
    crowd.ask("light", 12)
    crowd.ask("heavy", 12)
    order = crowd.end()
    print(order)
    until = [index for index, name in enumerate(order) if name == "heavy"][8]
    assert order[:until].count("light") <= 5, order  # 3 by weight.
    cluster.wait_all_free()
