"""The settings of a site under test: those of library.md, with a service that the environment names."""

import os
from typing import Any

from stanzaq.django.framework import NAME
from tests.frameworks.documented import program

ACCOUNT: dict[str, Any] = {"url": os.environ["SHOP_URL"], "password": os.environ["SHOP_PASSWORD"]}

documented: dict[str, Any] = {}
exec(program("settings"), documented)  # noqa: S102
INSTALLED_APPS = [name.replace("shop", "tests.frameworks.shop") for name in documented["INSTALLED_APPS"]]
TASKS = documented["TASKS"]
SECRET_KEY = "secret"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS["default"]["OPTIONS"] = ACCOUNT
TASKS["any"] = TASKS["default"] | {"QUEUES": []}
TASKS["dummy"] = {"BACKEND": f"{NAME}.backends.dummy.DummyBackend"}
