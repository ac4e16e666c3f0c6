"""Goal: users share the machines by the weights of their keys, one request does not wait for another user's many, and
urgent requests go first. Method: one prompt and one token machine with memory for a few streams; more requests than
that at once from several keys; then in which order they end. Answers are of equal length, so the order is that of the
queues; nothing is timed."""

import json
import threading
import time

from cluster import Cluster, need_model

KEYS = {"keys": [{"name": "many", "key": "sk-many-0123456789abcdef"},
                 {"name": "one", "key": "sk-one-0123456789abcdef"},
                 {"name": "heavy", "key": "sk-heavy-0123456789abcdef", "weight": 3},
                 {"name": "light", "key": "sk-light-0123456789abcdef"},
                 {"name": "operator", "key": "sk-operator-0123456789", "admin": True, "priority_best": -10}]}
BY_NAME = {key["name"]: key["key"] for key in KEYS["keys"]}


class Crowd:
    """Requests at once, and the order in which they end."""

    def __init__(self, cluster):
        self.cluster, self.order, self.threads = cluster, [], []

    def ask(self, name, count=1, priority=0):
        for index in range(count):
            self.threads.append(threading.Thread(target=self.one, args=(name, priority, index)))
            self.threads[-1].start()

    def one(self, name, priority, index):
        prompt = [(sum(map(ord, name)) * 31 + index * 7 + k * 13) % 40000 + 100 for k in range(40)]
        body = {"prompt": prompt, "max_tokens": 60, "ignore_eos": True, "priority": priority}
        status, _, data = self.cluster.request("POST", "/v1/completions", body,
                                               {"Authorization": f"Bearer {BY_NAME[name]}"})
        assert status == 200, data
        assert json.loads(data)["usage"]["completion_tokens"] == 60
        self.order.append(name)

    def wait_waiting(self, count):
        """Until so many wait at the gateway, or no more will."""
        deadline = time.monotonic() + 20
        while self.cluster.metric("cleave_requests_unrouted") < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def end(self):
        for thread in self.threads:
            thread.join()
        return self.order


need_model()
config = {"kv": {"memory": "8MiB", "prefix_cache": False}, "threads": 1, "server": {"api_keys_file": "keys.json"}}
with Cluster(config, files={"keys.json": KEYS}) as cluster:
    cluster.headers["Authorization"] = f"Bearer {BY_NAME['operator']}"
    crowd = Crowd(cluster)
    crowd.ask("many", 40)
    crowd.wait_waiting(20)
    crowd.ask("one")
    crowd.ask("operator", priority=-5)
    order = crowd.end()
    print(order)
    assert order.index("one") < 25 and order.index("operator") < 25, order  # some had begun before it came

    crowd = Crowd(cluster)
    crowd.ask("many", 60)
    crowd.wait_waiting(30)  # so that the others wait with all they have
    crowd.ask("light", 24)
    crowd.ask("heavy", 24)
    order = crowd.end()
    print(order)
    until = [index for index, name in enumerate(order) if name == "heavy"][17]
    assert order[:until].count("light") <= 12, order  # 6 by weight
    cluster.wait_all_free()
