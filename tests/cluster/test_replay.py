"""Goal: `cleave replay` of a slice of a production trace ends without a failure, with exact token counts, and leaves
every block free. Method: ten seconds of the Azure conversation trace, lengths scaled to a small machine."""

import json
import os
import subprocess
import tempfile

from cluster import BINARY, Cluster, need_model, shared

need_model()
trace = shared("traces/AzureLLMInferenceTrace_conv.csv")
with Cluster() as cluster, tempfile.TemporaryDirectory() as folder:
    report_path = os.path.join(folder, "report.json")
    done = subprocess.run([BINARY, "replay", trace, "--url", f"http://{cluster.host}:{cluster.port}", "--start", "60",
                           "--duration", "10", "--rate-scale", "0.5", "--length-scale", "0.1", "--max-context", "2048",
                           "--json", report_path], capture_output=True, text=True, timeout=800)
    print(done.stdout[-3000:])
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    with open(report_path) as file:
        report = json.load(file)
    cluster.wait_all_free()
    print(sorted(report))
