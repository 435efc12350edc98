// The page of routes at /docs: what /openapi.json says, made readable.

import { headers } from "./api.js";
import { byId, element } from "./dom.js";
import { loadKey } from "./storage.js";

async function show(key) {
  const answer = await fetch("openapi.json", { headers: headers(key) });
  const locked = answer.status === 401;
  byId("access").hidden = !locked;
  if (!answer.ok) {
    byId("notice").textContent = locked ? "This server needs an API key." : `Error ${answer.status}.`;
    return;
  }
  const description = await answer.json();
  const groups = new Map(); // operations by tag, in the order of their paths
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const [tag] = operation.tags;
      groups.set(tag, [...(groups.get(tag) ?? []), { path, method, operation }]);
    }
  }
  const sections = [...groups].sort().map(([tag, operations]) =>
    element("section", {}, element("h2", {}, tag.replaceAll("_", " ")),
      ...operations.map((one) => route(one, description.components.schemas))),
  );
  byId("routes").replaceChildren(...sections);
  byId("notice").textContent = `oxibonsai ${description.info.version}`;
}

function route({ path, method, operation }, schemas) {
  const body = operation.requestBody?.content ?? {};
  const [type] = Object.keys(body);
  const fields = [
    ...operation.parameters.map((p) => ({ name: p.name, where: p.in, schema: p.schema, required: p.required })),
    ...(type ? members(body[type].schema, schemas) : []),
  ];
  const answers = Object.keys(operation.responses["200"].content).join(", ");
  return element("details", {},
    element("summary", {}, element("b", {}, method.toUpperCase()), element("code", {}, path),
      element("span", {}, operation.summary)),
    element("p", {}, `Answers with ${answers}.${operation.security ? " Needs no API key." : ""}`),
    ...(fields.length ? [element("table", {}, ...fields.map(row))] : []),
  );
}

// The members of a body, with their schemas.
function members(schema, schemas) {
  const found = schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
  const required = found.required ?? [];
  return Object.entries(found.properties ?? {}).map(([name, value]) => ({
    name, where: "body", schema: value, required: required.includes(name),
  }));
}

function row({ name, where, schema, required }) {
  const about = [schema.description, typeOf(schema)].filter(Boolean).join(" · ");
  return element("tr", {},
    element("td", {}, element("code", {}, required ? `${name} *` : name)),
    element("td", {}, where),
    element("td", {}, about),
  );
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return either.map(typeOf).filter((name) => name !== "null").join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {})}`;
  return Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "any");
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  show(byId("key").value);
});
show(loadKey());
