"""The page that `keep dev` shows: one small server beside the host, in the same process and on the same ledger.

In reading order:

    page_server.py   binds a port and runs the server inside the host's loop
    web_app.py       all routes, the acts, and the guard around everything
    guard.py         the rules for every request, and the headers of every answer; no route can forget them
    sessions.py      who may sign in: the one-time token, the password, the sessions; guessing is slow
    site.py          what a page uses: `page` and `show` to read and render, `site` for the rest
    cards.py         questions to a person as cards, with a form for each answer
    filters.py       what the address of a list asks for
    timeline.py      a story as sentences
    render.py        Jinja with everything from outside escaped, invisible characters too; style and script
    deep_checks.py   the thorough check of the page Health; the ledger's part runs in a process of its own
    plans.py         what a model writes for the box on Home, beside the host
    demo_page.py     what `keep demo --ui` adds: Home with three buttons, and a session that outlives the host
    pages/           the pages; templates/ their texts; static/ style, script and what came from npm:
                     keep.js keeps an open page true, keys.js has the keys and the palette, times.js the reader's
                     zone, forms.js what was typed and refused, token.js the token of the session

## A page

A page is an entry in `ROUTES` of a module in pages/, a function that reads what it shows, and a template:

    LINKS = (NavLink("Runs", "/workflows/{wf}/runs", order=40),)   # entries in the navigation, or ()
    THINGS = {"run_": "/runs/{id}"}                                # where an id leads, for the macro `ref`; or {}

    def _runs(look: Look, request: Request) -> Mapping[str, Any]:
        wf = look.views.workflow_row(request.path_params["wf"])    # NotFound becomes a page that says so
        return {"wf": wf, "listed": …}

    ROUTES = (page("/workflows/{wf}/runs", "runs.html", _runs),)

The function runs in a thread, with a connection that can only read, and all its statements see one moment of the
ledger. `look.now_ms` is the host's clock. The function must not touch the host. It gives the template's context. If the
page is about one workflow, `wf` is that workflow's row, and that workflow's navigation is shown. `show` adds `shown`
(the version that the page shows, for acts), `links` and `asked` (the number of questions). What the function looks up
comes from reading/, which the command line shares.

A page that takes long to make checks for the header `LIVE`, with which an open page fetches itself again: then it
leaves out the costly part.

## A template

A template extends base.html and fills the blocks `title` and `main`, and `styles` for a style sheet of its own. Texts
need no filter to be safe, and no filter can make them unsafe. Macros (status, time, paging, JSON, forms of acts) are
in macros.html.

A part that follows the ledger is marked `<section id="…" data-live>`. When something was committed, the page is fetched
again, and each such part that changed is replaced, unless a person types in it, has the focus there or has selected
text. A `<details>` with an id stays open.

## An act

An act is a form to /act, made by the macro `act`: the name of an act in `model/acts.py`, its parameters, `shown`,
and the address to go back to. That page shows at its top what came of the act, or why it was refused. Every form with
the method post carries the token of the session. No page contains the token: static/token.js adds it.
"""
