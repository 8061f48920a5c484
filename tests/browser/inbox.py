"""The inbox as a person uses it: rows, the card of one of them, and its answers."""

from playwright.async_api import Locator, Page, expect

from supervisor.core.approvals import Request


def row_of(page: Page, request: Request) -> Locator:
    """The row of a request, among those that wait or those that were answered."""
    return page.locator(f'#inbox-list [data-row="{request.id}"]')


def rows(page: Page) -> Locator:
    """The rows that wait."""
    return page.locator('#inbox-list [data-row]:is([data-state="waiting"], [data-state="held"])')


def shown_card(page: Page, request: Request) -> Locator:
    """The card while it is that of this request, whoever opened it."""
    return page.locator(f'#pane[data-request="{request.id}"]')


async def card_of(page: Page, request: Request) -> Locator:
    """Open a request's card, as a person does who clicks on its row and then looks at the card."""
    card = shown_card(page, request)
    if await card.count() == 0:
        await find_row(page, request)
        await row_of(page, request).locator("[data-open]").click()
        await expect(card).to_be_visible()
        await card.locator("#card-title").hover()
    return card


async def came(page: Page, request: Request) -> None:
    """Wait until a request's row is shown, or waits behind "N new: show"."""
    either = row_of(page, request).or_(page.locator("#news"))
    await expect(either.filter(visible=True).first).to_be_visible()


async def find_row(page: Page, request: Request) -> None:
    """Wait for a row. It waits behind "N new: show" while the pointer is in the list."""
    await came(page, request)
    if not await row_of(page, request).is_visible():
        await page.locator("#news").click()
        await expect(row_of(page, request)).to_be_visible()


async def steady(card: Locator) -> None:
    """Wait until the card answers: it changed long enough ago."""
    await expect(card).to_be_visible()
    await expect(card).not_to_have_attribute("data-settling", "all")
    await expect(card).not_to_have_attribute("data-settling", "keys")


async def settled_on(page: Page, request: Request) -> None:
    """Wait until the focus is on this card, and keys count there."""
    card = page.locator(f'#pane[data-request="{request.id}"]:not([data-settling])')
    await expect(card).to_be_focused()


def approve_button(card: Locator) -> Locator:
    """What approves now: all of it, or the ticked changes."""
    return card.locator('[data-key="a"]:not([hidden])')


def deny_button(card: Locator) -> Locator:
    return card.locator('[data-key="d"]')


def reason_box(card: Locator) -> Locator:
    return card.locator('[data-key="r"]')


async def approve(page: Page, request: Request) -> None:
    """Open the card and press Approve."""
    card = await card_of(page, request)
    await steady(card)
    await approve_button(card).click()


async def deny(page: Page, request: Request, reason: str = "") -> None:
    """Open the card and press Deny."""
    card = await card_of(page, request)
    await steady(card)
    await reason_box(card).fill(reason)
    await deny_button(card).click()


async def nothing_waits(page: Page) -> None:
    """Wait until the list says so."""
    await expect(page.locator("#inbox-list").get_by_text("Nothing waits.")).to_be_visible()


async def select_alike(page: Page, number: int) -> Locator:
    """Select all that are like the open one; the card of so many."""
    await expect(page.locator("#pane[data-request]")).to_be_visible()
    await page.keyboard.press("X")
    batch = page.locator("#pane[data-batch]")
    await expect(batch.locator("#card-title")).to_have_text(f"{number} requests")
    return batch


async def always_form(card: Locator) -> Locator:
    """Open the menu "Always"; its form, which has the focus."""
    await card.locator('[data-key="A"]').click()
    form = card.locator("form.always-form")
    await expect(form.locator("input[name=rule]:checked")).to_be_focused()
    return form


async def settled_card(page: Page, request: Request, state: str) -> Locator:
    """Wait until an answered request's row has this state; its card, opened."""
    await find_row(page, request)
    await expect(row_of(page, request)).to_have_attribute("data-state", state)
    card = await card_of(page, request)
    await expect(card.locator(".answer.settled .state")).to_have_class(f"state {state}")
    return card
