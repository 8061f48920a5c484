// A question before what can't be taken back.
import { questionOf } from "./comments.js";
import { $, toast } from "./say.js";

// What a person is being asked about: its part of the page stays as it is until they answer.
let asked = null;
export const isAskedIn = (part) => part.contains(asked);

export function watchConfirmations() {
  const dialog = $("confirm");
  let go = null;
  document.addEventListener("htmx:confirm", (event) => {
    const lost = questionOf(event.detail.elt);
    const question = event.detail.question || lost;
    if (!question) return;
    event.preventDefault();
    const button = event.detail.elt;
    asked = button;
    $("confirm-title").textContent = button.dataset.title || (lost ? "Approve without your comments?" : "Really?");
    $("confirm-text").textContent = question;
    $("confirm-yes").textContent = button.dataset.yes || (lost ? "Approve" : "Yes");
    // Green is for what lets something out, and for nothing else.
    $("confirm-yes").className = `button ${"danger" in button.dataset ? "deny danger" : "approves" in button.dataset ? "approve good" : "strong good"}`;
    go = () => event.detail.issueRequest(true);
    dialog.returnValue = "no";
    dialog.showModal();
  });
  dialog.addEventListener("close", () => {
    const [wanted, button] = [go, asked];
    go = asked = null;
    if (dialog.returnValue !== "yes" || !wanted) return;
    if (button.isConnected) wanted();
    else toast("What you were asked about isn't here any more. Nothing was done: look again.");
  });
}
