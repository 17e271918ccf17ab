"""A process that makes one call and can be made to die in the middle of it."""

import asyncio
import json
import sys

from keepai.connectors import make
from keepai.connectors.base import Call
from keepai.testing import install_from_env


def main() -> None:
    order = json.loads(sys.argv[1])
    install_from_env()
    connector = make(order["type"], "under_test", {"path": order["path"]})
    operation = connector.operations[order["operation"]]
    result = asyncio.run(
        operation.invoke(operation.parse(order["params"]), Call(idempotency_key=order["key"]))
    )
    print(json.dumps(result))


main()
