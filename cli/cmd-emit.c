/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/workspaces.h"
#include "cli/io/commands.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "planner/base/error.h"
#include "planner/emit/emit.h"

#include <stdio.h>

static const char help[] = "What can be written, as TARGET:"
#define X(id, name, summary) "\n  " name ": " summary
    PLAN_EMIT_LIST (X)
#undef X
    ;

static gboolean
parse_kind (const char *as, const char *runtime, PlanEmitKind *out_kind,
            PlanEmitRuntime *out_runtime, GError **error)
{
  *out_runtime = PLAN_EMIT_RUNTIME_OF_STACK;
  return (!as || plan_emit_kind_parse (as, out_kind, error))
         && (!runtime || plan_emit_runtime_parse (runtime, out_runtime, error));
}

int
cmd_emit (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (AdviseInput) input = { 0 };
  g_autofree char *as = NULL, *runtime_name = NULL, *path = NULL;
  PlanEmitKind kind = PLAN_EMIT_PLAN;
  PlanEmitRuntime runtime;
  g_autoptr (PlanCase) of = NULL;
  const GOptionEntry entries[] = {
    { "as", 0, 0, G_OPTION_ARG_STRING, &as,
      "what is written, of those below; what the plan's stack takes by default", "TARGET" },
    { "runtime", 0, 0, G_OPTION_ARG_STRING, &runtime_name,
      "what a job starts; the plan's stack by default", "stack|megatron|fsdplan" },
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &path, "where to; standard output by default",
      "FILE" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "a plan as commands, calls and jobs of other programs");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_context_describe (context, help);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (!parse_kind (as, runtime_name, &kind, &runtime, error)
      || !cli_input_read (&options, NULL, &input, error)
      || !(of = advise_case (&input, &input.plan, error)))
    return CLI_FAILED;
  const PlanEmitSubject subject = { .of = of, .cluster_spec = input.cluster_spec };
  if (options.from_megatron && !(as && kind == PLAN_EMIT_PLAN))
    fprintf (stderr,
             "%s: note: its data, checkpoints and learning rates are no part of a plan: what is "
             "written has others\n",
             options.from_megatron);
  g_autofree char *note = NULL;
  g_autofree char *text = as ? plan_emit (kind, runtime, &subject, error)
                             : plan_emit_natural (runtime, &subject, &note, error);
  if (note)
    fprintf (stderr, "fsdplan: note: %s\n", note);
  return text && cli_write (path ? path : "-", text, error) ? CLI_DONE : CLI_FAILED;
}
