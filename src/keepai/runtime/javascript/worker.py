"""The worker process: takes one job after another from its socket and runs each in a fresh VM.

It holds no secret, no database and no network, and it locks itself in before the first job. It ends when its
host is gone or kills it, or after an unexpected error. After a limit it takes no further job, because its state may
be damaged.
"""

from __future__ import annotations

import gc
import os
import socket
from typing import NoReturn

from .deadline import Deadline
from .frames import HostChannel, job_of, pack, predicted_of, script_of
from .harden import protect
from .instance import Image
from .loaded_scripts import LoadedScripts
from .speculative_mutate import try_mutate
from .step import StepRun
from .vm import Vms
from .wasm_engine import Engine

EXIT_UNEXPECTED, EXIT_OUT_OF_MEMORY = 70, 71


def serve(sock: socket.socket, engine: Engine, image: Image, keep: frozenset[int]) -> NoReturn:
    """Run jobs until the host goes away; never returns."""
    code = EXIT_UNEXPECTED
    try:
        if hasattr(os, "SCHED_BATCH"):
            # A fair share of the processor, without interrupting the process that has it: that is mostly the host,
            # which just sent this worker a message and is about to go on.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        deadline = Deadline(engine.interrupt)
        report = protect(keep | {sock.fileno()}, before_seal=deadline.watch)
        channel, vms, scripts = HostChannel(sock), Vms(engine), LoadedScripts(image)
        channel.send(pack({"t": "ready", "protections": [[p.name, p.active, p.why] for p in report]}))
        gc.freeze()  # what is there now stays: no collection has to look at it
        while _one_job(channel, vms, scripts, deadline):
            pass
        while True:  # it met a limit: the host kills it, after it has read the last frame
            channel.receive()
    except (EOFError, OSError):
        code = 0
    except MemoryError:
        code = EXIT_OUT_OF_MEMORY
    finally:  # this is a forked process: nothing may run on into the server's code
        os._exit(code)


def _one_job(channel: HostChannel, vms: Vms, scripts: LoadedScripts, deadline: Deadline) -> bool:
    frame = channel.receive()
    while frame["t"] != "job":  # else it is an answer that was on its way when the step before ended
        if frame["t"] == "script":
            for number in frame["forget"]:
                scripts.forget(number)
            scripts.learn(frame["script"], script_of(frame))
        frame = channel.receive()
    script = scripts.use(frame["script"])
    job, number = job_of(frame, script), frame["n"]
    step = StepRun(vms, scripts, channel, deadline, script, job, number, predicted_of(frame))
    step.run(job.limits.compute_s)
    trying = job.ahead is not None and step.returned
    step.send_end(try_mutate(vms, scripts, deadline, script, job, step, number) if trying else None)
    return step.clean
