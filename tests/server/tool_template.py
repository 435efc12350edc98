"""Short chat templates with tools, without and with reasoning, for a model whose context is short."""

from __future__ import annotations

TEMPLATE = """\
{%- for t in tools or [] %}<tools>{{ t.function.name }}</tools>{% endfor %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
{%- if m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

THINKING_TEMPLATE = (
    TEMPLATE
    + """\
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking %}<think>
{% endif %}
{#- The end of thoughts: </think> #}"""
)

# What the model may say in a call is so little that every seed says it.
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
