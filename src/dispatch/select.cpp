// SPDX-License-Identifier: Apache-2.0
// Selection with everything switched on: forced rows, routing rules, the log, and the sentences that say why.
#include "dispatch/select.h"

#include <unistd.h>

#include "core/text.h"

namespace ek {

namespace {

// What refused a row, in the order in which selection asks.
enum class Refuser { kNobody, kDeviceType, kTarget, kPromise, kNeed, kWhyNot };

struct Refusal {
  Refuser by = Refuser::kNobody;
  const char* why = nullptr;  // of the row's why_not
  explicit operator bool() const { return by != Refuser::kNobody; }
};

Refusal refusal_of(const ek_context& context, const OpCall& call, int index) {
  const RowInfo row = call.row(call.tables, index);
  if (row.target.device_type != context.device.id.type) return {Refuser::kDeviceType};
  if (!target_fits(row.target, context.device)) return {Refuser::kTarget};
  if (context.flags & kPromiseFlags & ~row.promises) return {Refuser::kPromise};
  if (row.needs & ~context.flags) return {Refuser::kNeed};
  if (const char* why = call.why_not(call.tables, index, call.args, context.device)) return {Refuser::kWhyNot, why};
  return {};
}

// The refusal as words.
void add_refusal(TextWriter* text, const ek_context& context, const RowInfo& row, const Refusal& refusal) {
  switch (refusal.by) {
    case Refuser::kNobody: text->add("would take the call too"); break;
    case Refuser::kDeviceType:
      text->add("runs on %s", row.target.device_type == EK_DEVICE_CUDA ? "CUDA" : "the CPU");
      break;
    case Refuser::kTarget:
      if (row.target.device_type == EK_DEVICE_CUDA)
        text->add("needs sm_%d, the device is sm_%d", row.target.level, context.device.target);
      else
        text->add("needs x86-64-v%d, CPU and system allow v%d", row.target.level, context.device.target);
      break;
    case Refuser::kPromise: {
      const uint32_t missing = context.flags & kPromiseFlags & ~row.promises;
      text->add("not %s, which the context's flags ask for",
                missing & EK_FLAG_DETERMINISTIC ? "deterministic" : "batch invariant");
      break;
    }
    case Refuser::kNeed: text->add("needs EK_FLAG_TF32, which the context has not set"); break;
    case Refuser::kWhyNot: text->add("%s", refusal.why); break;
  }
}

enum class Because { kForced, kEnvironment, kRule, kFirst, kNothing };

struct Choice {
  int index = -1;  // the forced row also where it refuses
  Because because = Because::kNothing;
  int line = 0;     // of the rule
  Refusal refusal;  // of the forced row
  bool ok() const { return index >= 0 && !refusal; }
};

Choice choose(const ek_context& context, const OpCall& call) {
  const OpState& op = context.ops[call.op_index];
  Choice choice;
  if (op.forced >= 0 || op.env_forced >= 0) {
    choice.index = op.forced >= 0 ? op.forced : op.env_forced;
    choice.because = op.forced >= 0 ? Because::kForced : Because::kEnvironment;
    choice.refusal = refusal_of(context, call, choice.index);
    return choice;
  }
  for (const Rule* rule = op.rules.begin; rule != op.rules.end; ++rule) {
    // A choice that depends on the batch would make results depend on it.
    if (rule->batch && (context.flags & EK_FLAG_BATCH_INVARIANT)) continue;
    if (!rule_matches(context.table, *rule, call.dims, call.args) || refusal_of(context, call, rule->row)) continue;
    choice.index = rule->row;
    choice.because = Because::kRule;
    choice.line = rule->line;
    return choice;
  }
  for (int i = 0; call.row(call.tables, i).name; ++i)
    if (!refusal_of(context, call, i)) {
      choice.index = i;
      choice.because = Because::kFirst;
      return choice;
    }
  return choice;
}

// "rms_norm T=bf16 rows=64 dim=4096"
void add_call(TextWriter* text, const OpCall& call) {
  text->add("%s", call.op);
  for (int i = 0; i < call.dim_count; ++i) {
    const DimField& field = call.dims[i];
    const int64_t value = field_value(field, call.args);
    const char* name = field.kind == FieldKind::kDtype ? ek_dtype_name(static_cast<ek_dtype>(value)) : nullptr;
    for (int v = 0; field.values && field.values[v] && !name; ++v)
      if (v == value) name = field.values[v];
    if (name)
      text->add(" %s=%s", field.name, name);
    else
      text->add(" %s=%lld", field.name, static_cast<long long>(value));
  }
}

const char* device_word(const ek_context& context) { return context.device.id.type == EK_DEVICE_CUDA ? "cuda" : "cpu"; }

void add_because(TextWriter* text, const Choice& choice) {
  switch (choice.because) {
    case Because::kForced: text->add("forced by ek_kernel_force"); break;
    case Because::kEnvironment: text->add("forced by EINKORN_KERNEL"); break;
    case Because::kRule: text->add("line %d of the routing table", choice.line); break;
    case Because::kFirst: text->add("the first that takes the call"); break;
    case Because::kNothing: text->add("no row takes the call"); break;
  }
}

// Every refusal as `<before><row>: <reason>`; rows of another kind of device only on demand.
void add_refusals(TextWriter* text, const ek_context& context, const OpCall& call, const char* before,
                  bool other_devices) {
  for (int i = 0; call.row(call.tables, i).name; ++i) {
    const Refusal refusal = refusal_of(context, call, i);
    if (!refusal || (refusal.by == Refuser::kDeviceType && !other_devices)) continue;
    const RowInfo row = call.row(call.tables, i);
    text->add("%s%s: ", before, row.name);
    add_refusal(text, context, row, refusal);
  }
}

// One line in one write, so that threads do not mix theirs.
void log_choice(const ek_context& context, const OpCall& call, const Choice& choice) {
  char line[2048];
  TextWriter text(line, sizeof(line) - 1);
  text.add("einkorn: ");
  add_call(&text, call);
  text.add(" -> %s (", choice.ok() ? call.row(call.tables, choice.index).name : "nothing");
  add_because(&text, choice);
  text.add(")");
  add_refusals(&text, context, call, "; ", false);
  size_t length = text.length() < sizeof(line) - 2 ? text.length() : sizeof(line) - 2;
  line[length++] = '\n';
  // A log that can't be written is no reason to fail.
  if (write(STDERR_FILENO, line, length) < 0) return;
}

}  // namespace

ek_status select_row(ek_context* context, const OpCall& call, int* index_out) {
  const Choice choice = choose(*context, call);
  if (env().log_dispatch) log_choice(*context, call, choice);
  *index_out = choice.index;
  if (choice.ok()) return EK_STATUS_OK;

  char text[kErrorBytes];
  TextWriter writer(text, sizeof(text));
  if (choice.refusal) {
    const RowInfo row = call.row(call.tables, choice.index);
    writer.add("row %s, ", row.name);
    add_because(&writer, choice);
    writer.add(", refuses: ");
    add_refusal(&writer, *context, row, choice.refusal);
  } else {
    writer.add("no row takes the call on %s:%d (%s)", device_word(*context), context->device.id.id,
               context->device.name);
    add_refusals(&writer, *context, call, "\n  ", true);
  }
  return fail(context, EK_STATUS_UNSUPPORTED, "%s: %s", call.op, text);
}

ek_status explain_call(ek_context* context, const OpCall& call, char* text, size_t bytes, size_t* needed) {
  const Choice choice = choose(*context, call);
  TextWriter writer(text, bytes);
  add_call(&writer, call);
  writer.add(" on %s:%d (%s)\n-> ", device_word(*context), context->device.id.id, context->device.name);
  if (choice.index >= 0) writer.add("%s: ", call.row(call.tables, choice.index).name);
  add_because(&writer, choice);
  writer.add("%s\n", choice.refusal ? ", but it refuses" : "");
  for (int i = 0; call.row(call.tables, i).name; ++i) {
    if (i == choice.index && choice.ok()) continue;
    const RowInfo row = call.row(call.tables, i);
    writer.add("   %s: ", row.name);
    add_refusal(&writer, *context, row, refusal_of(*context, call, i));
    writer.add("\n");
  }
  if (needed) *needed = writer.length() + 1;
  return succeed(context);
}

}  // namespace ek
