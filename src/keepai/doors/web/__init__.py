"""The page that `keep dev` shows: one small server beside the host, in the same process and on the same ledger.

In reading order:

    page_server.py   binds a port and runs the server inside the host's loop
    web_app.py       the routes of every page, the few that are no pages, and the guard around all
    guard.py         what every request must keep and every answer carries; no route can forget it
    sessions.py      who may come in: the one-time token, the password, the sessions
    password_tries.py  makes guessing the password slow
    site.py          what a page is given: `show` to read and render, `site` for the rest
    look_threads.py  reading the ledger in threads of its own, never in the host's loop
    live.py          /live: tells open pages that something was committed
    act_route.py     /act: the one form that does anything, through `control.perform`
    cards.py         questions to a person as cards, with a form for each answer
    filters.py       from the address of a list to what it shall show
    timeline.py      a story as sentences
    render.py        Jinja with everything from outside escaped, invisible characters too
    assets.py        style and script, served with their hash in the address
    deep_checks.py   the close look that Health offers, in a process of its own where it may take long
    demo_page.py     what `keep demo --ui` has besides: Home with three buttons, and a session that outlives the host
    pages/           the pages; templates/ their texts; static/ style, script and what came from npm

A page is one module in pages/ and its template. Nothing else has to be touched: the modules of the package are found by
themselves. A module has

    LINKS = (NavLink("Runs", "/workflows/{wf}/runs", order=40),)   # its entries in the navigation, or ()
    THINGS = {"run_": "/runs/{id}"}                             # where ids lead, for the macro `ref`; or {}

    def routes() -> list[Route]:
        return [Route("/workflows/{wf}/runs", _runs)]           # GET only: acts are forms to /act

    async def _runs(request: Request) -> Response:
        return await show(request, "runs.html", _read)

    def _read(look: Look, request: Request) -> dict[str, object]:
        workflow = look.views.workflow_row(request.path_params["wf"])   # NotFound becomes a page that says so
        return {"wf": workflow, "runs": …}

`_read` runs in a thread, with a connection that can only read and one moment of the ledger for all its statements;
`look.now_ms` is the host's clock. It must not touch the host. What it gives is the template's context, with `shown`
(the version that the page shows, for acts), `links` and `asked` (the number of questions) added. Under
`wf` it gives the row of the workflow that the page is about, if it is about one: then that workflow's navigation is
shown. What it looks up comes from small functions in reading/, which the command line shares.

A template extends base.html and fills the blocks `title` and `main`. Parts that shall follow the ledger are marked
`<section id="…" data-live>`: when something was committed the page is fetched again, and each such part that changed is
replaced, unless somebody types, has the focus or has marked text in it. A `<details>` with an id stays open. A
file of styles of its own goes into the block `styles`. Texts need no filter to be safe, and there is none to make them
unsafe. Macros (status, time, paging, JSON, forms of acts) are in macros.html.

A page that takes long to make makes nothing if the header `LIVE` says that it is only fetched again.

Every form with the method post carries the token of the session. It stands in no page: static/token.js adds it.

An act is a form to /act made by the macro `act`: the name of an act in `model/acts.py`, its parameters, `shown`,
and the address to go back to. What comes of it, or why it was refused, is shown at the top of that page.
"""
