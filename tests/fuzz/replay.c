/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a fuzzer's entry point every file of its corpus, so that make check replays what fuzzing
 * once found, with any compiler; and texts like each of them, the same every time. The program's
 * own name says which corpus: replay-model.tap reads corpus/model. */
#include "config.h"

#include "tests/fuzz/mutate.h"

#include <glib.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

#define MUTANTS 100 /* of all files together */

/* Words that are emptied in turn: all of a small file, some of a large one. */
#define SMALL_BYTES 2048
#define WORDS_OF_SMALL 200
#define WORDS_OF_LARGE 24

static char *
corpus_folder (const char *program)
{
  const char *top_srcdir = g_getenv ("top_srcdir");
  g_autofree char *name = g_path_get_basename (program);

  g_assert_true (g_str_has_prefix (name, "replay-") && g_str_has_suffix (name, ".tap"));
  name[strlen (name) - strlen (".tap")] = '\0';
  return g_build_filename (top_srcdir ? top_srcdir : ".", "tests/fuzz/corpus",
                           name + strlen ("replay-"), NULL);
}

static int
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *)a, *(const char *const *)b);
}

/* The names of the corpus, sorted: folders are listed in another order on each machine. */
static GPtrArray *
list_files (const char *folder, GError **error)
{
  g_autoptr (GDir) dir = g_dir_open (folder, 0, error);
  GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
  for (const char *name; dir && (name = g_dir_read_name (dir));)
    g_ptr_array_add (names, g_strdup (name));
  g_ptr_array_sort (names, compare_names);
  return names;
}

static void
try_mutants (const char *name, const char *text, gsize size, guint n)
{
  for (guint32 seed = 1; seed <= n; seed++)
    {
      gsize length;
      g_autofree char *other = fuzz_mutate (text, size, seed, &length);
      g_print ("# %s changed by seed %u\n", name,
               seed); /* before it runs: a crash leaves its seed */
      LLVMFuzzerTestOneInput ((const uint8_t *)other, length);
    }
}

static void
try_without_words (const char *name, const char *text, gsize size)
{
  const guint n = fuzz_count_words (text, size);
  const guint most = size <= SMALL_BYTES ? WORDS_OF_SMALL : WORDS_OF_LARGE;
  for (guint word = 0; word < n; word += n / most + 1)
    {
      gsize length;
      g_autofree char *other = fuzz_empty (text, size, word, &length);
      g_print ("# %s without word %u\n", name, word);
      LLVMFuzzerTestOneInput ((const uint8_t *)other, length);
    }
}

int
main (int argc, char **argv)
{
  g_autofree char *folder = corpus_folder (argv[0]);
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) names = list_files (folder, &error);
  for (guint i = 0; !error && i < names->len; i++)
    {
      const char *const name = names->pdata[i];
      g_autofree char *path = g_build_filename (folder, name, NULL);
      g_autofree char *text = NULL;
      gsize size;
      if (!g_file_get_contents (path, &text, &size, &error))
        break;
      g_print ("# %s\n", name); /* before it runs: a crash leaves its name */
      LLVMFuzzerTestOneInput ((const uint8_t *)text, size);
      try_without_words (name, text, size);
      try_mutants (name, text, size, MUTANTS / names->len);
      g_print ("ok %u - %s\n", i + 1, name);
    }
  if (error)
    {
      g_print ("Bail out! %s\n", error->message);
      return 1;
    }
  g_print ("1..%u%s\n", names->len, names->len == 0 ? " # SKIP empty corpus" : "");
  return 0;
}
