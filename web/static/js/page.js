// The one script of every page: wires the parts together. What an agent wrote is only ever set as text; markup comes from our own
// templates, where the server escaped it.
import { watchActs } from "./acts.js";
import { watchChanges } from "./changes.js";
import { watchComments } from "./comments.js";
import { watchConfirmations } from "./confirm.js";
import { watchDiffs } from "./diffs.js";
import { watchFolds } from "./folds.js";
import { watchForms } from "./forms.js";
import { guardPresses } from "./press_guard.js";
import { watchHosts } from "./hosts.js";
import { watchInbox } from "./inbox.js";
import { watchKeyHelp } from "./key_help.js";
import { watchKeys } from "./keys.js";
import { watchHunks } from "./hunks.js";
import { connect } from "./live.js";
import { watchScreen } from "./output.js";
import { watchParts } from "./parts.js";
import { watchRules } from "./rules.js";
import { $, watchDone, watchErrors, watchSlow } from "./say.js";
import { watchNotifications } from "./notify.js";
import { watchOpened } from "./opened.js";
import { watchOverflow } from "./overflow.js";
import { watchPlaces } from "./places.js";
import { watchStart } from "./start.js";
import { watchSteadiness } from "./steady.js";
import { watchTime } from "./time.js";

guardPresses();
watchParts();
watchTime();
watchErrors();
watchDone();
watchSlow();
watchSteadiness();
watchFolds();
watchConfirmations();
watchInbox();
watchActs();
watchChanges();
watchForms();
watchKeyHelp();
watchKeys();
watchNotifications();
watchHunks();
watchDiffs();
watchComments();
watchOpened();
watchHosts();
watchScreen();
watchPlaces(); // last: it looks where things are once all else is as it was
watchRules();
watchStart();
watchOverflow();
document.addEventListener("htmx:afterRequest", (event) => {
  const form = event.detail.requestConfig.elt;
  if (form.id === "add-rule" && $("rules-said").querySelector(".good")) form.reset();
});
connect();
