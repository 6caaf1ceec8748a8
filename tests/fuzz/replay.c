/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/* Feeds a fuzzer's entry point every file of its corpus, so that make check replays what fuzzing
 * once found, with any compiler. The program's own name says which: replay-model.tap reads
 * corpus/model. */

#include <glib.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

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

int
main (int argc, char **argv)
{
  g_autofree char *folder = corpus_folder (argv[0]);
  g_autoptr (GError) error = NULL;
  g_autoptr (GDir) dir = g_dir_open (folder, 0, &error);
  const char *name;
  int n = 0;

  if (!dir)
    {
      g_print ("Bail out! %s\n", error->message);
      return 1;
    }
  while ((name = g_dir_read_name (dir)))
    {
      g_autofree char *path = g_build_filename (folder, name, NULL);
      g_autofree char *text = NULL;
      gsize size;

      if (!g_file_get_contents (path, &text, &size, &error))
        {
          g_print ("Bail out! %s\n", error->message);
          return 1;
        }
      g_print ("# %s\n", name); /* before it runs: a crash leaves its name */
      LLVMFuzzerTestOneInput ((const uint8_t *)text, size);
      g_print ("ok %d - %s\n", ++n, name);
    }
  g_print ("1..%d%s\n", n, n == 0 ? " # SKIP empty corpus" : "");
  return 0;
}
