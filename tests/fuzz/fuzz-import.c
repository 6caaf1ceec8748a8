/* SPDX-License-Identifier: Apache-2.0 */
/* What is imported, as SQL, JSON or CSV, is exported and imported again as the same store; what is
 * refused leaves no mark. */
#include "config.h"

#include "db/transfer.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void
append (const char *text, gpointer user_data)
{
  g_string_append (user_data, text);
}

/* The store that is made of the text, as SQL; NULL when it is refused. */
static char *
import_and_dump (const char *text)
{
  g_autoptr (DbStore) store = db_store_open (":memory:", NULL);
  g_autoptr (GString) dump = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  const DbSource source = { .text = text, .origin = "fuzz" };
  DbImport import;

  if (!store)
    abort ();
  const gboolean done = db_store_import (store, &source, 1, FALSE, &import, &error);
  if (done != (error == NULL) || !db_store_dump (store, append, dump, NULL))
    abort ();
  if (!done && strstr (dump->str, "\nINSERT"))
    abort ();
  return done ? g_strdup (dump->str) : NULL;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  if (!g_utf8_validate (text, -1, NULL)) /* refused where the file is read */
    return 0;
  g_autofree char *dump = import_and_dump (text);
  fuzz_count (dump != NULL);
  g_autofree char *again = dump ? import_and_dump (dump) : NULL;
  if (dump && g_strcmp0 (dump, again) != 0)
    abort ();
  return 0;
}
