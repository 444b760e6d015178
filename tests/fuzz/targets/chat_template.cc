// Chat templates: programs of whoever made the model, with bounded time and output.
#include "services/text/chat_template.h"

#include "tests/fuzz/target.h"

namespace dex::fuzz {

Corpus corpus() {
  return {
      {"{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
       "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
       "{%- set ns = namespace(n=0) -%}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
       "{{ m.role | upper }}: {{ m.content | trim }}{{ eos_token }}{% endfor %}{{ ns.n }}",
       "{{ bos_token }}{% for m in messages if m.role != 'system' %}{{ m | tojson }}{% endfor %}",
       "{% macro turn(m) %}[{{ m.content[::-1] }}]{% endmacro %}{% for m in messages %}{{ turn(m) "
       "}}{{ m.content }}{% endfor %}",
       "{% if messages | length == 0 %}{{ raise_exception('none') }}{% endif %}{{ "
       "messages[0].content }}{{ messages[1].content }}{{ messages[2].content }}",
       "{% for i in range(1000000) %}{% for j in range(1000000) %}x{% endfor %}{% endfor %}",
       "{{ 'ab' * 1000000000 }}", "{{ range(99999999) | list }}",
       "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"},
      {"{{",          "}}",         "{%",
       "%}",          "{#",         "#}",
       "{%- ",        " -%}",       "for m in messages",
       "endfor",      "if ",        "endif",
       "set x = ",    "| tojson",   "| join(',')",
       ".split(' ')", "range(9)",   "loop.index0",
       "namespace()", "is defined", "not ",
       "** 99",       "[::-1]",     "messages[-1]",
       "self",        "{% raw %}",  "{% endraw %}",
       "~ x"}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const auto made = dex::text::ChatTemplate::from_source(
      std::string(view(data, size)), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  check(made.status());
  if (!made.ok()) return 0;
  const std::vector<dex::text::Message> messages = {{.role = "system", .content = "Be brief."},
                                                    {.role = "user", .content = " caf\xC3\xA9? "},
                                                    {.role = "assistant", .content = "Yes."}};
  const auto text = (*made)->render(messages, true);
  check(text.status());
  const auto spans = (*made)->render_with_spans(messages);
  check(spans.status());
  if (!spans.ok()) return 0;
  taken();
  for (const auto& span : spans->spans) {
    require(!span || (span->begin <= span->end && span->end <= spans->text.size()),
            "a span lies in the text");
  }
  return 0;
}
