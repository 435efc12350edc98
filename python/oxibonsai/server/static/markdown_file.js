// A conversation as a Markdown text: the branch that is shown, without the thoughts.

import { branchOf, titleOf } from "./conversation.js";
import { t } from "./words.js";

export function asMarkdown(conversation) {
  const parts = [`# ${titleOf(conversation)}`];
  if (conversation.system) parts.push(`## ${t`System prompt`}\n\n${conversation.system}`);
  for (const message of branchOf(conversation)) {
    const who = message.role === "user" ? t`You` : (message.model ?? t`Model`);
    const said = [message.content, ...attached(message), ...called(message)].filter(Boolean);
    parts.push([`## ${who}`, ...said].join("\n\n"));
  }
  return `${parts.join("\n\n")}\n`;
}

function attached({ attachments = [] }) {
  return attachments.map(({ name, text }) =>
    text === undefined ? `*${t`Attached: ${name}`}*` : `*${t`Attached: ${name}`}*\n\n${fenced(text)}`,
  );
}

function called({ toolCalls = [] }) {
  return toolCalls.filter(Boolean).flatMap(({ name, arguments: given, result }) => [
    `*${t`Called ${name}`}*`,
    fenced(given),
    ...(result === undefined ? [] : [fenced(result)]),
  ]);
}

// A fence that is longer than any in the text.
function fenced(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}
