"""The twin of examples/devices.py, with Celery.

$ python devices.py
"""

import json
import random
import sqlite3
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path

from celery import Celery
from kombu.exceptions import OperationalError

DEVICES, READINGS = 200, 10
app = Celery("devices", broker="amqp://localhost")
app.conf.update(broker_transport_options={"confirm_publish": True}, task_ignore_result=True)


def open_outbox(number: int) -> sqlite3.Connection:
    outbox = sqlite3.connect(f"devices/{number}.db")
    outbox.execute("CREATE TABLE IF NOT EXISTS readings (id TEXT PRIMARY KEY, reading TEXT NOT NULL)")
    return outbox


def measure(number: int) -> None:
    sending = threading.Thread(target=send, args=(number, threading.current_thread()))
    with closing(open_outbox(number)) as outbox:
        sending.start()
        for _ in range(READINGS):
            reading = {"device": number, "at": time.time_ns(), "celsius": random.gauss(20)}
            with outbox:
                outbox.execute("INSERT INTO readings VALUES (?, ?)", (uuid.uuid4().hex, json.dumps(reading)))
            time.sleep(1)


def send(number: int, measuring: threading.Thread) -> None:
    with closing(open_outbox(number)) as outbox:
        delay = 1
        while True:
            is_last = not measuring.is_alive()
            rows = outbox.execute("SELECT id, reading FROM readings ORDER BY rowid LIMIT 50").fetchall()
            try:
                for id, reading in rows:
                    app.send_task("store", [json.loads(reading)], task_id=id, queue="readings", retry=False)
                    with outbox:
                        outbox.execute("DELETE FROM readings WHERE id = ?", (id,))
                delay = 1
            except OperationalError:
                delay = min(2 * delay, 60)
            if is_last and not rows:
                return
            time.sleep(delay)


if __name__ == "__main__":
    Path("devices").mkdir(exist_ok=True)
    for number in range(DEVICES):
        threading.Thread(target=measure, args=(number,)).start()
