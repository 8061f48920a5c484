"""What an agent writes stays text, wherever a page shows it. `Watch` fails a test for any
dialog, error or foreign request."""

import re
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.actions import Exec, Git, Network, Packages, Proposal
from supervisor.core.approvals import status
from tests.browser.conftest import Watch, opened
from tests.browser.inbox import always_form, card_of, rows
from tests.browser.operator_site import Site

PAYLOADS = [
    '<img src=x onerror="window.owned=1">',
    "</textarea></pre></code></title><script>window.owned=1</script>",
    '"><svg onload=window.owned=1><a href="javascript:window.owned=1">',
    "' hx-get='/api/stop-all' hx-trigger='load' x='",
    (
        '" hx-on:load="window.owned=1" hx-vals="js:{a:window.owned=1}" autofocus'
        ' onfocus="window.owned=1'
    ),
    "{{97*89}}${97*89}{% raw %}<%= 97*89 %>",
    "javascript:window.owned=1//https://evil.example.org/",
    "<form action=https://evil.example.org><input name=x autofocus onfocus=window.owned=1>",
    (
        "<style>*{display:none}</style><link rel=stylesheet"
        " href=https://evil.example.org/x.css><base href=https://evil.example.org>"
    ),
    (
        "<article class=card id=pane data-request=x hx-swap-oob=true><template><meta"
        " http-equiv=refresh content=0;url=//evil.example.org>"
    ),
]
DECEPTIVE = "a\u202egpj.exe\u202c b\u200bc \x1b[2J\x1b]0;owned\x07 d\u2066e\ufeff"
SPELLED = (
    "a\\u{202e}gpj.exe\\u{202c} b\\u{200b}c \\u{1b}[2J\\u{1b}]0;owned\\u{7} d\\u{2066}e\\u{feff}"
)


async def harmless(page: Page, site: Site) -> None:
    """Nothing of what an agent wrote became part of the page."""
    found: dict[str, Any] = await page.evaluate("""() => ({
            owned: window.owned ?? null,
            made: document.querySelectorAll('img[src="x"], body script, svg:not([class]), style, base, template, [data-request="x"], [onload], [onfocus],'
                + ' [onerror], a[href^="javascript:"], form[action]:not([action="/network"]), [hx-get="/api/stop-all"], [hx-trigger="load"], meta[http-equiv]').length,
            scripts: [...document.scripts].map((one) => one.src.replace(location.origin, "")),
            raw: /[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\ufeff\\u001b]/.test(document.documentElement.outerHTML),
            title: document.title,
        })""")  # noqa: E501
    assert found["owned"] is None
    assert found["made"] == 0
    assert found["scripts"] == ["/static/vendor/htmx/htmx.min.js", "/static/js/page.js"]
    assert not found["raw"]
    assert "8633" not in found["title"]
    assert site.parts.kill_switch.reason() is None
    assert page.url.startswith(site.url)


@pytest.mark.parametrize("payload", [PAYLOADS[3], " ".join(PAYLOADS), DECEPTIVE])
async def test_requests(site: Site, page: Page, payload: str) -> None:
    asked = [
        site.ask(Exec(command=f"echo {payload}", cwd=payload), reason=payload),
        site.ask_change(f"src/{payload.replace('/', '|')}", b"old\n", payload.encode() + b"\n",
        reason=payload),
        site.ask(Network(operation="request", host="a.example.org", port=443, scheme="https",
        method="GET", path=f"/{payload}", sni=payload, host_header=payload)),
        site.ask(Git(operation="push", remote="origin", refspecs=(payload,), flags=(payload,)),
        reason=payload),
        site.ask(Packages(manager="pip", operation="install", names=(payload,), flags=(payload,)),
        reason=payload),
        site.ask(Proposal(effect="allow", rule=f"exec({payload})", why=payload), reason=payload),
        site.ask(Proposal(effect="allow", rule=f"filesystem(docs/{re.sub(r'[][*?()/]|[^ -~]', '',
        payload)})", why=payload), reason=payload),
    ]  # fmt: skip
    assert status(asked[-1]) == "pending"
    waiting = [request for request in asked if status(request) == "pending"]
    assert waiting
    await expect(rows(page)).to_have_count(len(waiting))
    await harmless(page, site)
    shown = SPELLED if payload == DECEPTIVE else payload
    for request in waiting:
        card = await card_of(page, request)
        if request.reason and not request.held_up:
            assert (await card.locator("[data-role=reason]").text_content()) == shown
        if await card.locator("[data-key=A]").count():
            await always_form(card)
        await harmless(page, site)
    for request in waiting:
        site.parts.gate.resolve(request.id, "denied", by="operator (cli)", reason=payload)
    await expect(rows(page)).to_have_count(0)
    await harmless(page, site)


async def test_the_card_of_several(site: Site, page: Page) -> None:
    asked = [site.ask(Exec(command=payload)) for payload in PAYLOADS]
    waiting = [request for request in asked if status(request) == "pending"]
    assert len(waiting) > 2
    await expect(rows(page)).to_have_count(len(waiting))
    await page.get_by_role("button", name="Select").click()
    for box in await page.locator("#inbox-list input[name=row]").all():
        await box.check()
    await expect(page.locator("#pane[data-batch] .lines li")).to_have_count(len(waiting))
    await harmless(page, site)


async def test_pages(site: Site, context: BrowserContext) -> None:
    everything = " ".join([*PAYLOADS, DECEPTIVE])
    sessions = site.parts.sessions
    sessions.add(
        "evil", f"/tmp/{everything.replace('/', '|')}", command=("sh", "-c", everything),
        notices=(everything,),
        model=everything[:200], base=everything, end_reason=everything, kind="review",
    )  # fmt: skip
    sessions.record_review("evil", {
        "verdict": everything, "summary": everything, "model": everything,
        "usage": {"turns": everything, "input_tokens": everything},
        "findings": [
            {"severity": everything, "title": everything, "path": everything, "line": everything,
             "body": everything, "suggestion": everything},
            {"severity": "high"}, {}, everything, None,
        ],
    })  # fmt: skip
    sessions.say("evil", everything.encode() + b"\n\xff\xfe\n")
    request = site.ask(Exec(command=everything), session_id="evil", reason=everything)
    if status(request) == "pending":
        site.parts.gate.resolve(request.id, "denied", by=everything, reason=everything)
    site.parts.policies.add_rule(
        "deny", "filesystem(<img src=x onerror=window.owned=1>)", why=everything, by=everything
    )
    site.parts.audit.record(
        "session_ended",
        session="evil",
        reason=everything,
        by=everything,
        command=everything,
        verdict=everything,
    )
    address = f"/requests/{request.id}"
    output = "/sessions/evil/output?lines=true"
    for path in ("/", address, "/sessions", "/sessions/evil", output, "/rules", "/history"):
        page = await opened(context, site, path)
        if path == output:
            await expect(page.locator("#output")).to_contain_text("<svg onload=window.owned=1>")
            await expect(page.locator("#output")).to_contain_text("a\\u{202e}gpj.exe")
        for record in await page.locator("details").all():
            await record.evaluate("(one) => { one.open = true; }")
        await harmless(page, site)
        if path != "/":  # whose rows are short
            assert "{{97*89}}" in (await page.content()), path
        await page.close()


async def test_messages_are_text(site: Site, page: Page) -> None:
    site.parts.kill_switch.stop(PAYLOADS[0])
    site.app.state["live"].status_changed()
    await expect(page.locator("#banner")).to_contain_text("<img src=x")
    site.parts.kill_switch.resume()
    await harmless(page, site)


async def test_a_page_runs_no_inline_script(site: Site, page: Page, watch: Watch) -> None:
    """Even where markup got in, the content security policy would hold."""
    watch.expected = ("Content Security Policy", "Refused to", "violates", "404")
    await page.evaluate("""() => {
            const box = document.createElement("div");
            box.innerHTML = '<img src="/static/none.png" onerror="window.owned=1"><b style="color:red">x</b>';
            document.body.append(box);
            const script = document.createElement("script");
            script.textContent = "window.owned = 1";
            document.body.append(script);
        }""")  # noqa: E501
    await page.wait_for_load_state("networkidle")
    assert await page.evaluate("window.owned ?? null") is None
