"""Puts the loop of `planning/` together for the doors: the model with its key, what drafts are tried with, the hook.

A plan is made by whoever asks for it, in his process; what comes of it reaches the ledger only through acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..app import Keep
from ..config import Settings
from ..engine.certificate import Certification
from ..engine.repair import Evidence, Fix, RepairHook
from ..model.codec import Json
from ..model.errors import ConfigError, Refused
from ..planning.drafts import DraftCertifier, DraftTrials, ScriptDraft
from ..planning.plan_loop import Offer, PlanLoop, PlanNews
from ..planning.wires import ModelConnection
from .script_process import ScriptProcess

NO_MODEL = (
    "There is no model to ask: keep.toml has no [model]. Add one, such as:\n"
    '[model]\nwire = "anthropic"      # or responses, or chat\nname = "…"              # as its service calls it\n'
    'key = "key"             # then: keep secrets set model key\ndocs/guides/models.md says more.'
)


def model_of(settings: Settings) -> ModelConnection:
    """The model of these settings, with its key."""
    if settings.model is None or settings.file is None:
        raise ConfigError(NO_MODEL)
    model = ModelConnection(settings.model)
    if settings.vault is not None:
        model.entrust(settings.vault.view(model.name))
    return model


@dataclass(frozen=True)
class PlanDesk:
    """What every plan on a host needs: the settings, and how a certificate is kept."""

    settings: Settings
    certify: DraftCertifier
    tell: Callable[[PlanNews], None] = lambda news: None

    def loop(
        self, offer: Offer, *, may_read: frozenset[str] = frozenset(), taken: frozenset[str] = frozenset(),
        mends: str | None = None,
    ) -> PlanLoop:
        """A loop that has asked nothing yet: for a new workflow, or one that `mends` the workflow of this name."""
        settings, model = self.settings, model_of(self.settings)
        process = ScriptProcess.of(settings)
        assert process is not None, "model_of has looked"
        trials = DraftTrials(
            settings.connectors, settings.policy, settings.ledger, process.test, self.certify, may_read, taken, mends,
            settings.grants)
        return PlanLoop(model, trials, process.config.parent, offer, self.tell, needs_cases=mends is None)


def by_model(settings: Settings, keep: Callable[[], Keep]) -> RepairHook:
    """The repair hook that asks the model of keep.toml; `keep` is the host that it belongs to."""
    model = model_of(settings).settings  # raises now if there is none
    minutes = min(model.minutes_max, settings.policy.repair_s / 60)
    settings = replace(settings, model=replace(model, minutes_max=minutes))

    async def certify(source: str, cases: str | None, script: str) -> Certification:
        return await keep().certify(source, cases=cases, script=script)

    async def hook(known: Evidence) -> Fix | None:
        found: list[Fix] = []

        async def offer(draft: ScriptDraft, work: dict[str, Json]) -> str:
            found.append(Fix(draft.source, note=draft.why))
            return known.run_id

        loop = PlanDesk(settings, certify).loop(offer, mends=known.workflow)
        done = await loop.mend(known.to_json(), cases_of(settings, known.workflow))
        if not found:
            raise Refused(f"the model found no repair: {done.ended}" + (f"; {done.fault.words}" if done.fault else ""))
        return found[0]

    return hook


def cases_of(settings: Settings, workflow: str) -> str | None:
    """The cases of a workflow, where they lie beside its script under its name."""
    file = settings.file.parent / f"{workflow}.test.toml" if settings.file and workflow.isprintable() else None
    is_plain = file is not None and "/" not in workflow and file.is_file()
    return file.read_text("utf-8", "replace") if file is not None and is_plain else None

