"""What a session is started with: the facts that its kind brings, checked before it is on record.

It starts and asks nothing: `surroundings` opens and closes what stands around a session.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from supervisor.core.agents.agents import AGENTS, MODEL_KEYS, AgentName, model_rules
from supervisor.core.agents.inside import can_listen_at
from supervisor.core.budget import format_budget, parse_budget
from supervisor.core.files.write_scope import WriteScope
from supervisor.core.jobs import author_of, job_prompt
from supervisor.core.packages.updates import updating
from supervisor.core.policy.policy_text import LONGEST_HOLD_S, parse_policy
from supervisor.core.sessions import QUARANTINED, is_quarantined
from supervisor.core.text.duration import format_duration
from supervisor.core.text.hosts import THIS_MACHINE
from supervisor.core.text.providers import URL_VARIABLES, NamedModel, Provider, read_models
from supervisor.core.text.ref_names import is_short
from supervisor.errors import PolicyError, UserError
from supervisor.gate.gate import Gate
from supervisor.network.model_hosts import check_is_elsewhere, rules_for_addresses
from supervisor.sandbox.programs import find_program
from supervisor.sessions import agent_programs, workspace_git
from supervisor.sessions.session_sandboxes import DEFAULT_MODEL, SessionSandboxes, StartingShell
from supervisor.sessions.start_session import StartSession
from supervisor.settings import DEFAULT_POLICY, ROOT, TAKEN_OVER, WORKSPACE_IN_COMPOSE, Settings
from supervisor.workspace.trees.trees import COPY

# What judges a session in quarantine, whatever the installation's policy says.
QUARANTINE_POLICY = ROOT / "policy/examples/reader.yaml"
UPDATES_POLICY = ROOT / "policy/examples/updates.yaml"
STRICT_POLICY = ROOT / "policy/examples/strict.yaml"
# The name of a review's model that plays a script, also where there is a key for another.
RECORDED = "recorded"
RECORDED_NOTICE = (
    "this review runs on a recorded model: no ANTHROPIC_API_KEY is set, so nobody looked at the"
    " code; it asks for one action of each kind"
)
DEMO_NOTICE = (
    "this is a demo on a throw-away project: a recorded model asks for one action of each kind, and"
    " nobody looked at the code"
)
STRICT_NOTICE = (
    "this session runs under policy/examples/strict.yaml, so that commands are asked, too"
)
RECORDED_JOB_NOTICE = (
    "this job runs on a recorded model: no ANTHROPIC_API_KEY is set, so nobody read the prompt; it"
    " writes one note within the scope"
)
# What a review of a pull request is started with, in place of a command.
OF_PULLS = frozenset({"--pull", "--read-only", QUARANTINED})
RECORDED_UPDATES_NOTICE = (
    "no ANTHROPIC_API_KEY is set, so a recorded model, which knows a few renamed functions, mends"
    " what an update breaks; what it can't mend is held back"
)
ENFORCED_NOTICE = (
    "deny and ask rules for exec hold for every program that starts here; what a program does by"
    " itself, such as a shell's builtins or a script in an interpreter, they don't see"
)
NO_GIT_NOTICE = (
    "the workspace is no git repository: the review has no diff, and git features are off"
)


def _with_host_ports(policy_text: str, ports: Sequence[int]) -> str:
    """Return a session's own rules with one more for each port of this machine. `UserError` where a
    sandbox can't have it."""
    if taken := [one for one in ports if not can_listen_at(one)]:
        raise UserError(
            f"a sandbox can't listen at port {taken[0]}",
            f"use {THIS_MACHINE}:{taken[0]} by the proxy, or another port",
        )
    data: dict[str, Any] = msgspec.json.decode(policy_text) if policy_text else {"version": 1}
    why = "a server of this machine that the session was started with"
    rules = [{"rule": f"network({THIS_MACHINE}:{port})", "why": why} for port in ports]
    return msgspec.json.encode(data | {"allow": [*data.get("allow", ()), *rules]}).decode()


class SessionPlans:
    """One per supervisor. `names` stands in for DNS."""

    def __init__(
        self,
        settings: Settings,
        gate: Gate,
        sandboxes: SessionSandboxes,
        names: Mapping[str, tuple[str, ...]] | None,
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._sandboxes = sandboxes
        self._names = names

    async def plan(self, wanted: StartSession, caller: StartingShell) -> dict[str, Any]:
        """Return the facts of a session; `UserError` where it can't be started so."""
        self._check_expected(wanted)
        self._check_folder(wanted.workspace)
        if wanted.resume is not None:
            must_have_copy(self._settings.sessions_dir / wanted.resume)
        if caller.tools.folders and self._settings.backend == "compose":
            raise UserError(
                "compose shows no tools of a home", "put them into agent_image/Dockerfile"
            )
        how = wanted.exec_rules or wanted.limits.exec_rules or self._settings.exec_rules
        enforced = how == "enforce"
        if enforced and self._settings.backend == "compose":
            raise UserError(
                "compose can't enforce rules on programs that start", "leave --exec-rules out"
            )
        found = await self._of_kind(wanted, caller)
        given = self._settings.host_ports if wanted.host_ports is None else wanted.host_ports
        if given and not is_quarantined(wanted.kind, wanted.command):
            found["policy_text"] = _with_host_ports(found.get("policy_text", ""), given)
        found["limits"] = msgspec.structs.replace(wanted.limits, exec_rules=how)
        if enforced:
            found["notices"] = (*found.get("notices", ()), ENFORCED_NOTICE)
        return found

    async def _of_kind(self, wanted: StartSession, caller: StartingShell) -> dict[str, Any]:
        is_quarantine = is_quarantined(wanted.kind, wanted.command)
        if is_quarantine and (self._settings.backend == "compose" or wanted.resume is not None):
            raise UserError(
                "a quarantine can't be had so",
                "have it on a machine of its own (no compose), and without a session to go on with",
            )
        policy = QUARANTINE_POLICY if is_quarantine else wanted.policy
        limits = parse_budget(
            self._settings.max_cost if wanted.budget is None else wanted.budget, "the budget"
        )
        common = {
            **self._gate.rulings.policy_sets.wanted(policy),
            "remotes": await workspace_git.remotes(wanted.workspace),
            "budget": format_budget(limits),
            "network": wanted.network or self._settings.network_mode,
            "keep_bodies": (
                self._settings.keep_bodies if wanted.keep_bodies is None else wanted.keep_bodies
            ),
        }
        if wanted.kind == "review":
            return common | await self._of_review(wanted, caller)
        if wanted.kind == "maintenance":
            return common | await self._of_job(wanted, caller)
        if not wanted.command:
            raise UserError(
                "no command to supervise", "give one: gatehouse run --workspace DIR -- COMMAND"
            )
        if wanted.agent is not None:
            return common | self._of_named_agent(wanted.agent, caller)
        if wanted.kind == "quarantine":
            # It can ask for nothing, so what it needs is open to it from the start.
            # Of AWS only what a setting names: people have its keys for other things.
            named = read_models(self._settings.review_model, "GATEHOUSE_REVIEW_MODEL")
            asked = {"anthropic", "openai", *(one.provider for one in named)}
            common["policy_text"] = self._rules_for_models(
                *dict.fromkeys(
                    key.provider
                    for key in MODEL_KEYS
                    if self._settings.model_keys[key.variable] and key.provider in asked
                )
            )
        if self._settings.backend == "bubblewrap":
            find_program(wanted.command[0], caller.search_path, Path.home())
        return common

    async def _of_review(self, wanted: StartSession, caller: StartingShell) -> dict[str, Any]:
        if not OF_PULLS.issuperset(wanted.command):
            raise UserError("a review has no command of its own", "leave `command` out")
        notices = []
        found: dict[str, Any] = {}
        base = await workspace_git.checked_base(wanted.workspace, wanted.base)
        if base is None:
            notices.append(NO_GIT_NOTICE)
        is_demo = wanted.review_model == RECORDED
        models = () if is_demo else self._models(wanted)
        recorded = not models
        more: list[str] = []
        if "--pull" in wanted.command:
            more = await self._rules_for_addresses(models)
        if recorded:
            notices.append(DEMO_NOTICE if is_demo else RECORDED_NOTICE)
            found = self._own_policy(STRICT_POLICY, wanted)
            notices += [STRICT_NOTICE] if found else []
        conducted, said = self._runtime(wanted, caller, models)
        notices += said
        return {
            **found,
            "command": ("gatehouse-review", "--base", base or "none", *wanted.command, *conducted),
            "base": base,
            "model": RECORDED if recorded else _written(models),
            "order": wanted.order,
            "policy_text": self._rules_for_readers(models, more),
            "notices": tuple(notices),
        }

    async def _of_job(self, wanted: StartSession, caller: StartingShell) -> dict[str, Any]:
        job = wanted.job
        if job is None or not job.prompt.strip():
            raise UserError("the job has no prompt", "say what is to be done with --prompt")
        if job.updates is not None and wanted.agent is not None:
            raise UserError("only the built-in agent updates dependencies", "leave --agent out")
        job = updating(job)
        WriteScope(job.scope)
        author_of(job)
        if job.branch_name and not is_short(job.branch_name):
            raise UserError(f"`{job.branch_name}` is no name of a branch", "give it another")
        base = await workspace_git.head(wanted.workspace)
        if base is None and job.branch:
            raise UserError(
                "the workspace is no git repository with a commit, so there can be no branch",
                "leave --branch out",
            )
        found: dict[str, Any] = {"job": job, "base": base}
        if wanted.agent is not None:
            command = (wanted.agent, *AGENTS[wanted.agent].headless, job_prompt(job))
            return found | self._of_named_agent(wanted.agent, caller) | {"command": command}
        models = self._models(wanted)
        recorded = not models
        notices = [RECORDED_JOB_NOTICE if job.updates is None else RECORDED_UPDATES_NOTICE]
        if job.updates is not None:
            found |= self._own_policy(UPDATES_POLICY, wanted)
        more: list[str] = []
        if job.branch_name:
            # An operator named the server, even at a private address: as for reviews.
            more = await self._rules_for_addresses(models)
        conducted, said = self._runtime(wanted, caller, models)
        return found | {
            "command": ("gatehouse-maintain", *conducted),
            "model": RECORDED if recorded else _written(models),
            "policy_text": self._rules_for_readers(models, more),
            "notices": tuple(notices if recorded else said),
        }

    def _own_policy(self, file: Path, wanted: StartSession) -> dict[str, Any]:
        """Return that a shipped policy judges a session whose person chose none."""
        if wanted.policy is not None or self._settings.policy_file != DEFAULT_POLICY:
            return {}
        saved = self._settings.data_dir / f"saved-{file.name}"
        return {"policy_file": str(file), "saved_rules_file": str(saved)}

    def _of_named_agent(self, name: AgentName, caller: StartingShell) -> dict[str, Any]:
        agent = AGENTS[name]
        program = agent_programs.find(name, caller.search_path, self._settings)
        if program is None:
            raise UserError(
                f"{agent.title} isn't installed",
                f"run `gatehouse {name}` once, which installs it, or put `{agent.program}` on PATH",
            )
        keys = [
            key
            for key in MODEL_KEYS
            if key.variable in agent.keys and self._settings.model_keys[key.variable]
        ]
        if not keys:
            raise UserError(agent_programs.no_key(name), f"{agent.advice}, and start again")
        providers = list(dict.fromkeys(key.provider for key in keys))
        for provider in providers:
            check_is_elsewhere(self._sandboxes.model_url(provider), provider)
        hosts = " and ".join(self._sandboxes.model_url(provider) for provider in providers)
        kept = " and ".join(key.variable for key in keys)
        said = (
            f"{agent.title} from {program.where}; {kept} stays with egress; {hosts} is open to it;"
            " before it runs a tool it asks here"
        )
        rules = self._rules_for_models(*providers, denied=agent.denied)
        return {"agent": name, "policy_text": rules, "notices": (said,)}

    def _rules_for_models(
        self,
        *providers: Provider,
        more: Sequence[str] = (),
        denied: Mapping[str, str] | None = None,
    ) -> str:
        """Return the session's own rules: its agent may reach its model, by these and `more`, and
        not what nobody needs to be asked about. Everything else stays as the policy says."""
        urls = {provider: self._sandboxes.model_url(provider) for provider in providers}
        why = "the model of this session's agent"
        data = {
            "version": 1,
            "allow": [{"rule": rule, "why": why} for rule in (*model_rules(urls), *more)],
            "deny": [{"rule": rule, "why": why} for rule, why in (denied or {}).items()],
        }
        text = msgspec.json.encode(data).decode()  # JSON is YAML
        try:
            parse_policy(text, "the model's address")
        except PolicyError as error:
            given = " or ".join(f"`{url}`" for url in urls.values())
            names = " or ".join(URL_VARIABLES[provider] for provider in providers)
            raise UserError(
                f"{names} {given} can't be used: {error.message}", "give `https://host`"
            ) from error
        return text

    def _check_expected(self, wanted: StartSession) -> None:
        """`UserError` where a person gave a setting that this supervisor has another of, for all
        its sessions."""
        limit_s = max(self._settings.hold_s, LONGEST_HOLD_S)
        if (wanted.limits.hold_s or 0) > limit_s:
            longest = format_duration(limit_s)
            raise UserError(
                f"the Gatehouse that runs holds nothing longer than {longest}",
                "say less in GATEHOUSE_HOLD",
            )
        ours = self._settings.for_all_sessions()
        others = sorted(name for name, value in wanted.expects.items() if ours.get(name) != value)
        if others:
            raise UserError(
                f"the Gatehouse that runs has another {', '.join(others)}, for all its sessions",
                "leave that out, or stop it first",
            )
        if unknown := (wanted.environment or {}).keys() - set(TAKEN_OVER):
            raise UserError(
                f"`{min(unknown)}` is not taken over into a sandbox",
                f"those that are: {', '.join(TAKEN_OVER)}",
            )

    def _check_folder(self, workspace: Path) -> None:
        """`UserError` where containers show another folder than is asked for."""
        if self._settings.backend == "compose" and workspace != WORKSPACE_IN_COMPOSE:
            raise UserError(
                f"compose supervises the folder that WORKSPACE names, here {WORKSPACE_IN_COMPOSE}",
                "start it anew with another WORKSPACE",
            )

    def _models(self, wanted: StartSession) -> tuple[NamedModel, ...]:
        """Return the models that a reader asks, each where those before it can't be; empty where
        nobody set one up. Those after the first of the setting stand in for one that was named for
        this session, too. INVARIANT: the code goes to no provider but those of the setting,
        whatever a repository's file names."""
        setting = "GATEHOUSE_REVIEW_MODEL"
        ours = read_models(self._settings.review_model, setting) or (NamedModel(),)
        named = read_models(wanted.review_model or "", "the review's model")
        models = tuple(dict.fromkeys((*named, *ours[1:]) if named else ours))
        known = {one.provider for one in ours}
        if foreign := [one for one in named if one.provider not in known]:
            raise UserError(
                f"the model `{foreign[0]}` is of a provider that {setting} doesn't name",
                "name one of its models there, after the first",
            )
        keys = self._sandboxes.providers_with_keys()
        missing = [one for one in models if one.provider not in keys]
        is_set_up = bool(keys and (named or self._settings.review_model))
        if missing and known == {"anthropic"} and not is_set_up:
            return ()
        if missing:
            wanting = [one.variable for one in MODEL_KEYS if one.provider == missing[0].provider]
            raise UserError(
                f"there is no key for the model `{missing[0]}`", f"set {' or '.join(wanting)}"
            )
        return models

    def _runtime(
        self, wanted: StartSession, caller: StartingShell, models: Sequence[NamedModel]
    ) -> tuple[list[str], list[str]]:
        """Return the word of the command that says what conducts it, and a notice; neither where
        that is our own loop, as always where nothing but a script is played. `UserError` where it
        can't be had."""
        runtime = wanted.review_runtime or self._settings.review_runtime
        program = agent_programs.of_runtime(runtime, caller.search_path, self._settings)
        if program is None or not models:
            return [], []
        if others := [one for one in models if one.provider != "anthropic"]:
            raise UserError(
                f"the runtime `{runtime}` asks Anthropic's API, and not `{others[0]}`",
                "name other models, or choose `loop`",
            )
        said = f"runtime {runtime}: Claude Code from {program.where} conducts it, with our tools"
        return [f"{agent_programs.RUNTIME}{runtime}"], [said]

    async def _rules_for_addresses(self, models: Sequence[NamedModel]) -> list[str]:
        found: list[str] = []
        for one in dict.fromkeys(one.provider for one in models):
            found += await rules_for_addresses(self._sandboxes.model_url(one), self._names)
        return list(dict.fromkeys(found))

    def _rules_for_readers(self, models: Sequence[NamedModel], more: Sequence[str]) -> str:
        providers = dict.fromkeys(one.provider for one in models)
        return self._rules_for_models(*providers, more=more) if models else ""


def _written(models: Sequence[NamedModel]) -> str:
    return ", ".join(str(one) for one in models if one.name) or DEFAULT_MODEL


def must_have_copy(folder: Path) -> None:
    """`UserError` where the folder of an ended session has no copy that another can go on with."""
    if not (folder / COPY).is_dir():
        raise UserError("the copy of this session is gone", "start a new session on the workspace")
