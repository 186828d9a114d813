// The settings of a queue, one field each, in groups, as the API describes them. They are read once, so that input is not overwritten.

import {ask, path} from "./api.js";
import {counted, fromTemplate, make, write} from "./dom.js";

// Options fixed at creation, and the state, which has its own buttons.
const APART = ["{urn:xmpp:pubsub:queueing:0}enabled", "pubsub#node_type", "stanzaq#state"];

export function settingsPart(name, {act}) {
  const root = make("div", {}, fromTemplate("settings"));
  const find = (selector) => root.querySelector(selector);
  const form = find("form");
  let [known, reading] = [null, false];

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const options = changed(form, known);
    const names = Object.keys(options);
    if (!names.length) return write(find("[role=alert]"), "Nothing is changed.");
    await act(async () => {
      await ask(path("queues", name), {method: "PATCH", body: {options}});
      write(find("[role=alert]"), "");
      known = null;
      return `${counted(names.length, "setting")} of ${name} changed.`;
    }, (words) => write(find("[role=alert]"), words));
  });
  form.addEventListener("reset", () => write(find("[role=alert]"), ""));

  async function refresh() {
    // Two refreshes may be under way at once: the later one would overwrite input.
    if (known || reading) return;
    reading = true;
    try {
      show(...await Promise.all([settingsOf(name), ask("openapi.json")]));
    } finally {
      reading = false;
    }
  }

  function show({options}, description) {
    form.hidden = !options;
    find(".empty").hidden = Boolean(options);
    if (!options) return;
    known = options;
    const body = description.paths["/queues/{queue}"].patch.requestBody.content["application/json"];
    const {properties: fields, "x-groups": groups} = body.schema.properties.options;
    const type = options["pubsub#node_type"];
    const shown = Object.keys(options).filter((each) => !APART.includes(each) && (fields[each]["x-node-type"] ?? type) === type);
    // Checkboxes come last, side by side.
    const ticked = (each) => fields[each]["x-kind"] === "boolean";
    shown.sort((one, other) => ticked(one) - ticked(other));
    find(".groups").replaceChildren(...groups.map((group) => {
      const here = shown.filter((each) => fields[each]["x-group"] === group);
      return here.length ? make("fieldset", {}, make("legend", {}, group),
        make("div", {class: "fields"}, ...here.map((each) => field(each, fields[each], options[each])))) : "";
    }));
  }

  return {root, refresh, fill() {}};
}

// None for users who may not see the queue, nor for those who see it but are not owners.
async function settingsOf(name) {
  try {
    return await ask(`${path("queues", name)}?limit=1`);
  } catch (fault) {
    if (fault.status !== 403) throw fault;
    return {};
  }
}

function field(name, schema, value) {
  const usual = schema.default && ` · default ${schema["x-kind"] === "boolean" ? ["off", "on"][schema.default] : schema.default}`;
  const words = make("span", {}, schema.description, make("small", {}, name, usual ?? ""));
  const label = make("label", {}, words, control(name, schema, value));
  label.dataset.kind = schema["x-kind"];
  return label;
}

function control(name, schema, value) {
  const kind = schema["x-kind"];
  if (kind === "boolean") return make("input", {type: "checkbox", name, checked: value === "1"});
  if (kind.endsWith("-multi")) return make("textarea", {name, rows: "3", spellcheck: "false"}, value);
  if (!schema.enum) return make("input", {name, value, autocomplete: "off", spellcheck: "false"});
  return make("select", {name}, ...schema.enum.map((each) => make("option", {selected: each === value}, each)));
}

function changed(form, known) {
  const said = [...form.elements].filter((each) => each.name).map((each) => [each.name, each.type === "checkbox" ? (each.checked ? "1" : "0") : each.value]);
  return Object.fromEntries(said.filter(([name, value]) => value !== known[name]));
}
