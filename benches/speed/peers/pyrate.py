"""One subject of the bench `speed`: pyrate-limiter's PostgreSQL bucket, used as its README shows.

    PYTHONPATH=... python3 pyrate.py URL THREADS SECONDS

Says "ready", waits for a line, measures, and prints one line of JSON. Threads share one limiter and one pool, with a
connection each. Nothing is ever refused for the limit; the bucket refuses while another holds the table's lock, and the
limiter then asks again by itself.
"""

import json
import sys
import threading
import time

from psycopg_pool import ConnectionPool
from pyrate_limiter import Limiter, PostgresBucket, Rate

url, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
# A tenth of a second: the bucket counts the rows of its window at each grant, a long one would be slower.
LIMIT = Rate(1_000_000, 100)
waits = [[] for _ in range(threads)]


def ask(limiter, end, waits):
    while True:
        asked = time.perf_counter()
        if asked >= end:
            return
        assert limiter.try_acquire("key-0")
        waits.append(time.perf_counter() - asked)


with ConnectionPool(url, min_size=threads, max_size=threads) as pool:
    pool.wait()
    bucket = PostgresBucket(pool, "speed_pyrate", [LIMIT])
    bucket.flush()
    limiter = Limiter(bucket)
    limiter.try_acquire("key-0")
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    askers = [threading.Thread(target=ask, args=(limiter, begin + seconds, mine)) for mine in waits]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    took = time.perf_counter() - begin
    limiter.close()

print(json.dumps({"seconds": took, "waits_us": [round(wait * 1e6) for mine in waits for wait in mine]}), flush=True)
