/* SPDX-License-Identifier: Apache-2.0 */
/* Whole commands: the text has parts that begin with a line "== NAME", which become files and words
 * of command lines. A text about a plan is shown, simulated, lowered, emitted, compared and
 * queried; one with a part to import goes into a store and out of it again. Every command is done,
 * or says why not. */
#include "config.h"

#include "cli/io/commands.h"
#include "tests/fuzz/accepted.h"

#include <glib/gstdio.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

typedef int (*Command) (int argc, char **argv, GError **error);

/* A part is written to its file, which becomes the value of its option; where there is no file, the
 * part's first line is the value. What is imported has no option. */
static const struct
{
  const char *name, *option, *file;
} parts[] = {
  { "model", "--model", "config.json" },
  { "dims", "--model", NULL },
  { "cluster", "--cluster", "cluster.ini" },
  { "topology", "--cluster", "topology" },
  { "machine", "--cluster", NULL },
  { "hw", "--hw", NULL },
  { "plan", "--plan", "plan" },
  { "megatron", "--from-megatron", "start.sh" },
  { "set", "--set", NULL },
  { "import", NULL, "import" },
};

#define STORE "store.db"
/* Slow commands run for one input in so many, chosen by a hash of its text; searches from a script
 * for Megatron-LM, which take longest, for fewer. */
#define ONE_IN 64
#define ONE_OF_SCRIPTS_IN 512

static char *folder;
static gboolean has_import;
static guint32 hash; /* of the text */
static char *why;    /* message of the last command that failed */

static void
remove_files (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].file)
      g_unlink (parts[i].file);
  g_unlink (STORE);
  g_unlink (STORE "-wal");
  g_unlink (STORE "-shm");
}

static void
leave (void)
{
  if (g_chdir (folder) != 0)
    return;
  remove_files ();
  g_rmdir (folder);
}

/* Makes this process's own folder, in memory where /dev/shm is. */
static void
make_folder (void)
{
  g_autofree char *in_memory = g_strdup ("/dev/shm/fuzz-commands-XXXXXX");
  folder = g_mkdtemp (in_memory) ? g_steal_pointer (&in_memory)
                                 : g_dir_make_tmp ("fuzz-commands-XXXXXX", NULL);
  if (!folder || !freopen ("/dev/null", "r", stdin))
    abort ();
  g_setenv ("XDG_DATA_HOME", folder, TRUE);
  atexit (leave);
}

/* Writes the part's file, or takes its first line as a word. A part of another name is left out. */
static void
take_part (const char *name, const char *text, gsize length, GPtrArray *words)
{
  guint i = 0;
  while (i < G_N_ELEMENTS (parts) && !g_str_equal (parts[i].name, name))
    i++;
  if (i == G_N_ELEMENTS (parts))
    return;
  const char *const of_file = g_str_equal (name, "topology") ? "h100-80gb@topology" : parts[i].file;
  g_autofree char *value = of_file ? g_strdup (of_file) : g_strndup (text, strcspn (text, "\n"));
  if (!parts[i].file && strpbrk (value, "/@")) /* might name a file of this machine */
    return;
  if (parts[i].file && !g_file_set_contents (parts[i].file, text, (gssize)length, NULL))
    abort ();
  if (!parts[i].option)
    has_import = TRUE;
  else
    g_ptr_array_add (words, g_strdup_printf ("%s=%s", parts[i].option, value));
}

static gboolean
has (const GPtrArray *words, const char *option)
{
  for (guint i = 0; i < words->len; i++)
    if (g_str_has_prefix (words->pdata[i], option))
      return TRUE;
  return FALSE;
}

/* Words of command lines. Model, cluster and batch are usual ones where the text has none. */
static GPtrArray *
take_parts (const char *text)
{
  GPtrArray *words = g_ptr_array_new_with_free_func (g_free);
  has_import = FALSE;
  for (const char *at = g_str_has_prefix (text, "== ") ? text : NULL; at;)
    {
      const char *const line = at + strcspn (at, "\n"), *const body = *line ? line + 1 : line;
      const char *const next = strstr (*line ? line : body, "\n== ");
      const gsize length = next ? (gsize)(MAX (next + 1, body) - body) : strlen (body);
      g_autofree char *name = g_strndup (at + 3, (gsize)(line - at - 3));
      take_part (name, body, length, words);
      at = next ? next + 1 : NULL;
    }
  const gboolean has_start = has (words, "--from-megatron");
  if (!has_start && !has (words, "--model"))
    g_ptr_array_add (words, g_strdup ("--model=llama3-8b"));
  if (!has (words, "--cluster"))
    g_ptr_array_add (words, g_strdup ("--cluster=dgx-h100:1"));
  if (!has_start && !has (words, "--plan"))
    g_ptr_array_add (words, g_strdup ("--gbs=64"));
  return words;
}

/* `more` ends in NULL; `words` may be NULL. */
static gboolean
is_done (Command command, const char *name, const GPtrArray *words, const char *const *more)
{
  g_autoptr (GPtrArray) line = g_ptr_array_new ();
  g_autoptr (GPtrArray) all = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GError) error = NULL;
  g_ptr_array_add (all, g_strdup (name));
  for (guint i = 0; words && i < words->len; i++)
    g_ptr_array_add (all, g_strdup (words->pdata[i]));
  for (; *more; more++)
    g_ptr_array_add (all, g_strdup (*more));
  for (guint i = 0; i < all->len; i++) /* parsing takes words out of the line */
    g_ptr_array_add (line, all->pdata[i]);
  g_ptr_array_add (line, NULL);
  const int result = command ((int)all->len, (char **)line->pdata, &error);
  if ((result == CLI_FAILED) != (error != NULL) || (error && !*error->message))
    abort ();
  if (error)
    {
      g_free (why);
      why = g_strdup_printf ("%s: %s", name, error->message);
    }
  return !error;
}

#define DO(command, words, ...) \
  is_done (cmd_##command, #command, words, (const char *const[]){ __VA_ARGS__, NULL })

static gboolean
plan (const GPtrArray *words)
{
  static const char *const as[]
      = { "megatron",   "bridge",   "megatron_fsdp", "torchtitan", "fsdp2", "fsdp1",
          "accelerate", "nanotron", "mpirun",        "slurm",      "plan",  "torchrun" };
  const char *const target = as[hash % G_N_ELEMENTS (as)];
  g_autofree char *emit_as = g_strconcat ("--as=", target, NULL);
  if (!DO (sim, words, "--db=:memory:", "--format=json"))
    return FALSE;
  DO (sim, words, "--db=:memory:", hash % 2 ? "--explain=memory" : "--explain=time");
  DO (lower, words, "--db=:memory:", hash % 2 ? "--rank=0" : "--rank=1");
  DO (emit, words, "--db=:memory:", emit_as);
  DO (show, words, "--db=:memory:");
  DO (diff, words, "--db=:memory:", hash % 2 ? "--to=mbs=2" : "--to=strategy=optim");
  if (hash % (has (words, "--from-megatron") ? ONE_OF_SCRIPTS_IN : ONE_IN) == 0)
    DO (query, words, "--db=:memory:", "--no-keep", "--top=2", "--only=recompute=none,full",
        "--only=mbs=1", "--only=tp=1", "--only=cp=1", "--only=pp=1",
        "--only=strategy=optim_grads_params");
  return TRUE;
}

static gboolean
import (const GPtrArray *words)
{
  if (!DO (import, words, "--db=" STORE, "import")
      && !DO (db, NULL, "--db=" STORE, "import", "import"))
    return FALSE;
  if (!g_file_test (STORE, G_FILE_TEST_EXISTS)) /* there were no rows */
    return FALSE;
  if (!DO (db, NULL, "--db=" STORE, "check")) /* the import checked it already */
    {
      dprintf (STDERR_FILENO, "%s\n", why);
      abort ();
    }
  DO (db, NULL, "--db=" STORE, "list");
  DO (db, NULL, "--db=" STORE, "export", hash % 2 ? "--format=json" : "--format=sql");
  DO (validate, NULL, "--db=" STORE, "--stored", "--rows");
  if (hash % ONE_IN == 0)
    DO (calibrate, NULL, "--db=" STORE, "--dry-run", "--folds=0");
  return TRUE;
}

static gboolean
try (const char *text)
{
  g_autoptr (GPtrArray) words = take_parts (text);
  return has_import ? import (words) : plan (words);
}

/* Runs in the folder, with stdout and stderr silenced; sanitizers write to the file descriptor, so
 * what they report is seen. */
int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  static FILE *nothing;
  FILE *const out = stdout, *const err = stderr;
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autofree char *before = g_get_current_dir ();
  if (!folder)
    make_folder ();
  if (!nothing && !(nothing = fopen ("/dev/null", "w")))
    abort ();
  if (g_chdir (folder) != 0)
    abort ();
  stdout = stderr = nothing;
  remove_files ();
  hash = g_str_hash (text);
  const gboolean is_accepted = try (text);
  stdout = out;
  stderr = err;
  if (g_chdir (before) != 0)
    abort ();
  fuzz_count (is_accepted);
  return 0;
}
