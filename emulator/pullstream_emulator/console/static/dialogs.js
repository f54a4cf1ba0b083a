// Dialogs, notices, and buttons that run an action.

import { isReadOnly } from "./api.js";
import { count, fill, h, setText, SHOWN_AT_ONCE } from "./dom.js";

const notice = document.getElementById("notice");
let timer = 0;

/** Show a line for some seconds; screen readers announce it. */
export function notify(text, tone = "") {
  clearTimeout(timer);
  setText(notice, text);
  notice.dataset.tone = tone;
  timer = setTimeout(() => setText(notice, ""), 8000);
}

/** A button that runs an action; null in a read-only console. */
export function action(label, run, attributes = {}) {
  if (isReadOnly) return null;
  const button = h("button", { type: "button", ...attributes, onclick: async () => {
    button.disabled = true;
    try {
      await run(button);
    } catch (error) {
      notify(error.message, "bad");
    } finally {
      button.disabled = false;
    }
  } }, label);
  return button;
}

/** A form whose submission runs an action; null in a read-only console. */
export function actionForm(run, attributes, ...children) {
  if (isReadOnly) return null;
  const form = h("form", { ...attributes, onsubmit: async (event) => {
    event.preventDefault();
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((button) => (button.disabled = true));
    try {
      await run(new FormData(form), event.submitter);
    } catch (error) {
      notify(error.message, "bad");
    } finally {
      buttons.forEach((button) => (button.disabled = false));
    }
  } }, ...children);
  return form;
}

function open(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

/** Ask before an action that cannot be undone; return whether to go on. */
export function confirm(question, label) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question },
      h("form", { method: "dialog" },
        h("p", null, question),
        h("p", { class: "buttons" },
          h("button", { value: "", type: "submit" }, "Cancel"),
          h("button", { value: "yes", class: "danger", type: "submit" }, label))));
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
    open(dialog);
  });
}

/** Ask for a token; return null if the user gives none. */
export function confirmToken(problem) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
    const dialog = h("dialog", { "aria-label": "Token" },
      h("form", { method: "dialog" },
        h("h2", null, "This broker needs a token"),
        problem ? h("p", { class: "error" }, problem) : null,
        h("label", null, "Token", input),
        h("p", { class: "note" }, "It stays in this tab, and is sent only to this broker."),
        h("p", { class: "buttons" }, h("button", { type: "submit", class: "primary", value: "yes" }, "Open"))));
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? input.value.trim() : null));
    open(dialog);
  });
}

/**
 * A button that shows texts to copy: [{label, text}], where `text` is a function. `texts` is called
 * when the button is pressed, and `text` when its label is chosen. The dialog shows the beginning of a
 * long text, and copies all of it.
 */
export function copyButton(label, texts) {
  return h("button", { type: "button", class: "quiet", onclick: async () => {
    const choices = await texts();
    const code = h("pre", { class: "code", tabindex: "0" });
    const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Form" });
    let chosen = "";
    const choose = (choice) => {
      chosen = choice.text();
      const further = chosen.length - SHOWN_AT_ONCE;
      setText(code, further > 0 ? `${chosen.slice(0, SHOWN_AT_ONCE)}\n… ${count(further)} more characters` : chosen);
      for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab.textContent === choice.label));
    };
    const copied = h("span", { role: "status" });
    fill(tabs, choices.map((choice) => h("button", { type: "button", onclick: () => choose(choice) }, choice.label)));
    const dialog = h("dialog", { class: "wide", "aria-label": label },
      h("h2", null, label), tabs, code,
      h("form", { method: "dialog", class: "buttons" },
        copied,
        h("button", { type: "submit" }, "Close"),
        h("button", { type: "button", class: "primary", onclick: async () => {
          setText(copied, (await copyText(chosen, code)) ? "Copied." : "Press Ctrl-C to copy.");
        } }, "Copy")));
    choose(choices[0]);
    open(dialog);
  } }, label);
}

async function copyText(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS a browser allows this on localhost only.
    setText(element, text);
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy");
  }
}
