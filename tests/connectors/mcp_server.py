"""An MCP server of our own that misbehaves as a file tells it to; over stdio, or as the service behind HTTP.

    python -S mcp_server.py FOLDER

It keeps notes, one JSON line each, in FOLDER/notes, and reads what is wrong with it from FOLDER/fault. It needs nothing
but Python, so that it starts in a moment.
"""

import json
import os
import sys
import time
from pathlib import Path

TOOLS = [
    {
        "name": "add_note", "description": "Add a note.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "ref": {"type": "string"}},
                        "required": ["text"]},
    },
    {
        "name": "find_notes", "description": "Find notes by their reference.", "annotations": {"readOnlyHint": True},
        "inputSchema": {"type": "object", "properties": {"ref": {"type": "string"}}, "required": ["ref"]},
        "outputSchema": {"type": "object", "properties": {"notes": {"type": "array", "items": {"type": "object"}}},
                         "required": ["notes"]},
    },
]


def notes(folder):
    file = Path(folder, "notes")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add(folder, note):
    with Path(folder, "notes").open("a") as file:
        file.write(json.dumps(note) + "\n")


def land(folder):
    """What is late happens now."""
    late = Path(folder, "late")
    if late.exists():
        add(folder, json.loads(late.read_text()))
        late.unlink()


def text(words, **more):
    return {"result": {"content": [{"type": "text", "text": words}], **more}}


#: Refused before anything was done.
REFUSED = {
    "invalid params": {"error": {"code": -32602, "message": "text is too long"}},
    "unknown tool": {"error": {"code": -32601, "message": "there is no such tool"}},
}
#: Said although the note was added.
ODD = {
    "an error of its own": {"error": {"code": -32603, "message": "Internal error"}},
    "isError": text("The index could not be written.", isError=True),
    "input_required": {"result": {"resultType": "input_required", "requestState": "x"}},
    "nothing": {"result": {}},
    "a task": {"result": {"task": {"taskId": "7", "status": "working"}}},
    "no object": {"result": [1]},
}


def turn(folder, fault):
    """The fault of this attempt, of a list such as `each:answer_lost,,late`."""
    with Path(folder, "attempts").open("a+") as file:
        file.write("x")
        file.seek(0)
        faults = fault.removeprefix("each:").split(",")
        return faults[(len(file.read()) - 1) % len(faults)]


def call(folder, params, fault):
    """What a tool does."""
    name, given = params["name"], params.get("arguments", {})
    if name == "find_notes":
        if fault == "lookup_denied":
            return {"error": {"code": -32000, "message": "no"}}
        found = [note for note in notes(folder) if note.get("ref") == given["ref"]]
        return {"result": {"content": [], "structuredContent": {"notes": found}}}
    fault = turn(folder, fault) if fault.startswith("each:") else fault
    if fault in REFUSED:
        return REFUSED[fault]
    if fault == "request_lost":
        os._exit(1)
    if fault == "late":
        Path(folder, "late").write_text(json.dumps(given))
        time.sleep(60)
    if fault == "handed_on":  # to something that does it soon, whatever becomes of the program
        Path(folder, "late").write_text(json.dumps(given))
        os._exit(1)
    add(folder, given)
    if fault == "answer_lost":
        os._exit(1)
    if fault == "held":
        time.sleep(60)
    return ODD.get(fault) or text("added")


def answer(folder, message, fault="", tools=TOOLS):
    """What a message is answered with; None if it is a notification."""
    method, said = message["method"], {"jsonrpc": "2.0", "id": message.get("id")}
    if "id" not in message:
        return None
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "notes", "version": "1"}}
        return {**said, "result": result}
    if method == "tools/list":
        return {**said, "result": {"tools": tools}}
    if method != "tools/call":
        return {**said, "error": {"code": -32601, "message": "there is no such method"}}
    return {**said, **call(folder, message["params"], fault)}


def main(folder):
    """Serve until the input ends. `env`, `pid` and `tools` are files that tests look at or write."""
    if Path(folder, "fault").exists() and Path(folder, "fault").read_text().startswith("each:"):
        land(folder)
    Path(folder, "env").write_text(json.dumps(sorted(os.environ)))
    Path(folder, "pid").write_text(str(os.getpid()))
    print("Notes, version 1. Welcome!", flush=True)  # as some programs do, against the protocol
    for line in sys.stdin:
        place, changed = Path(folder, "fault"), Path(folder, "tools")
        fault = place.read_text() if place.exists() else ""
        tools = json.loads(changed.read_text()) if changed.exists() else TOOLS
        message = json.loads(line)
        is_call = message.get("method") == "tools/call"
        wrong = {"wrong_answer": "add_note", "lookup_broken": "find_notes"}.get(fault)
        said = answer(folder, message, fault if is_call else "", tools)
        if is_call and wrong == message["params"]["name"]:
            print('{"ok": tru', flush=True)
        elif said is not None:
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
