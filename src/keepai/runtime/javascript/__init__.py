"""The JavaScript runtime. In reading order:

In the host: runtime (the contract's implementation), pool (which worker runs which step), step_session (one job on one
worker), call_predictor (the answer that is sent along with a job), fork_client and worker_link (workers and their
sockets), frames (the messages).

In the worker: fork_server (forks workers), worker (takes jobs), harden and linux (locks), step (one step),
speculative_mutate (`mutate` right after `prepare`), rules (refusals), large_values (values left out), loaded_scripts
(scripts and their images), deadline (compute time), vm, instance and image (the interpreter and its memory), guest and
wasm_engine (WebAssembly), cache and wasm (the interpreter's files), bootstrap.js and globals.js (what a script sees).
"""
