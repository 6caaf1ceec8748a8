/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/export.h"

#include "cli/io/commands.h"
#include "cli/io/context.h"
#include "exec/walk/export.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <stdio.h>
#include <string.h>

static const char help[]
    = "CHECKPOINT is the folder that fsdplan run --save was given, for the newest checkpoint in "
      "it, or that of one of its steps. The optimizer's state stays behind. The tokenizer is not "
      "the program's: copy its files beside the weights.";

/* The number format that the run multiplied in; for formats of eight bits and fewer bf16, which
 * their weights were quantised from. */
static PlanDtype
dtype_of_run (const ExecCheckpoint *checkpoint)
{
  const char *compute = exec_checkpoint_setting (checkpoint, "compute");
  return g_strcmp0 (compute, "fp32") == 0   ? PLAN_DTYPE_FP32
         : g_strcmp0 (compute, "fp16") == 0 ? PLAN_DTYPE_FP16
                                            : PLAN_DTYPE_BF16;
}

static gboolean
parse_dtype (const char *text, PlanDtype *out_dtype, GError **error)
{
  static const PlanDtype dtypes[] = { PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, PLAN_DTYPE_FP16 };
  for (guint i = 0; i < G_N_ELEMENTS (dtypes); i++)
    if (g_str_equal (text, plan_dtype_name (dtypes[i])))
      {
        *out_dtype = dtypes[i];
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--dtype: %s is not one of fp32, bf16, fp16",
               shown);
  return FALSE;
}

/* The folder without slashes at its end. The caller frees. */
static char *
folder_of (const char *output)
{
  gsize length = strlen (output);
  while (length > 1 && output[length - 1] == G_DIR_SEPARATOR)
    length--;
  return g_strndup (output, length);
}

static gboolean
check_words (const char *as, const char *output, int argc, GError **error)
{
  if (as && !g_str_equal (as, "hf"))
    {
      g_autofree char *shown = plan_text_quote (as);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--as: %s is not hf", shown);
      return FALSE;
    }
  if (argc == 2 && output)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "export: %s",
               argc == 2 ? "say where to with --output FOLDER" : "needs one CHECKPOINT");
  return FALSE;
}

static gboolean
export_checkpoint (const char *from, const char *dtype_text, guint64 shard_bytes,
                   const char *folder, GError **error)
{
  ExecExported done;
  PlanDtype dtype = PLAN_DTYPE_FP32;
  if ((dtype_text && !parse_dtype (dtype_text, &dtype, error))
      || !exec_export_check (folder, error))
    return FALSE;
  ExecCheckpoint *checkpoint = exec_checkpoint_open (from, NULL, error);
  if (!checkpoint)
    return FALSE;
  if (!dtype_text)
    dtype = dtype_of_run (checkpoint);
  const gint64 step = exec_checkpoint_step (checkpoint);
  g_autoptr (PlanModel) model = exec_checkpoint_model (checkpoint, error);
  g_autoptr (ExecWeights) weights
      = model ? exec_weights_of_checkpoint (checkpoint, model, error) : NULL;
  if (!model)
    exec_checkpoint_free (checkpoint);
  if (!weights || !exec_export_hf (weights, model, dtype, shard_bytes, folder, &done, error))
    return FALSE;
  g_autofree char *size = plan_units_format_size (done.bytes);
  printf ("%s: %s after step %" G_GINT64_FORMAT ", %u tensors in %s, %s in %u file%s\n", folder,
          plan_architecture_class (done.architecture), step, done.tensors, plan_dtype_name (dtype),
          size, done.files, done.files == 1 ? "" : "s");
  return TRUE;
}

int
cli_export (int argc, char **argv, GError **error)
{
  g_autofree char *as = NULL, *output = NULL, *dtype = NULL, *shard_size = NULL;
  guint64 shard_bytes = EXEC_EXPORT_SHARD_BYTES;
  const GOptionEntry entries[] = {
    { "as", 0, 0, G_OPTION_ARG_STRING, &as,
      "for whom: a folder of Hugging Face transformers; hf by default", "hf" },
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &output, "where to; it must be new or empty",
      "FOLDER" },
    { "dtype", 0, 0, G_OPTION_ARG_STRING, &dtype,
      "number format of the weights: fp32 has all that the checkpoint has; by default, what "
      "products were computed in, and bf16 for what is narrower",
      "fp32|bf16|fp16" },
    { "shard-size", 0, 0, G_OPTION_ARG_STRING, &shard_size,
      "bytes of weights in one file; 5GB by default", "SIZE" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new ("CHECKPOINT", "the weights of a checkpoint, for other programs");
  cli_context_add (context, entries);
  cli_context_describe (context, help);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (!check_words (as, output, argc, error)
      || (shard_size && !plan_units_parse_size (shard_size, "--shard-size", &shard_bytes, error)))
    return CLI_FAILED;
  g_autofree char *folder = folder_of (output);
  return export_checkpoint (argv[1], dtype, shard_bytes, folder, error) ? CLI_DONE : CLI_FAILED;
}
