/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, JSON, SQL, shell and .ini files are read alike here: words and quoted texts with
 * separators between them. A word is a cell, a key, a value or a name, whatever the form. */
#include "config.h"

#include "tests/fuzz/mutate.h"

#include <string.h>

#define MOST_CHANGES 4
#define DEEP 100000

/* Values that are hardly legal, or hardly illegal. */
static const char *const nasty[] = { "",
                                     "  ",
                                     "0",
                                     "-1",
                                     "1",
                                     "nan",
                                     "inf",
                                     "1e999",
                                     "-0.0",
                                     "1e-5",
                                     "yes",
                                     "no",
                                     "none",
                                     "null",
                                     "true",
                                     "[]",
                                     "{}",
                                     "\"\"",
                                     "''",
                                     "\"",
                                     "'",
                                     ",",
                                     ",,,,",
                                     "=",
                                     ";",
                                     "#",
                                     "\\",
                                     "\t",
                                     "\r\n",
                                     "\n",
                                     "\xff",
                                     "\xc3\xa9",
                                     "a b",
                                     "../..",
                                     "%s%n",
                                     "$(a)",
                                     "NULL",
                                     "auto",
                                     "2.5.6",
                                     "1:2",
                                     "@1",
                                     "x",
                                     "0x10",
                                     "local",
                                     "1,2",
                                     "2147483647",
                                     "2147483648",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "-9223372036854775808",
                                     "99999999999999999999999999" };

typedef struct
{
  const char *text;
  gsize length;
} Piece;

static gboolean
is_word (char c)
{
  return g_ascii_isalnum (c) || c == '_' || c == '.' || c == '-' || c == '+' || (guchar)c >= 0x80;
}

/* The length of the word, quoted text or separator that begins here. */
static gsize
measure (const char *text, gsize length)
{
  gsize n = 1;
  if (is_word (*text))
    while (n < length && is_word (text[n]))
      n++;
  else if (*text == '"' || *text == '\'')
    {
      while (n < length && text[n] != *text && text[n] != '\n')
        n += text[n] == '\\' && n + 1 < length ? 2 : 1;
      n = MIN (n + 1, length);
    }
  return n;
}

static GArray * /* of Piece */
split (const char *text, gsize length)
{
  GArray *pieces = g_array_new (FALSE, FALSE, sizeof (Piece));
  for (gsize at = 0; at < length;)
    {
      const Piece piece = { text + at, measure (text + at, length - at) };
      g_array_append_val (pieces, piece);
      at += piece.length;
    }
  return pieces;
}

static Piece *
piece_at (GArray *pieces, guint i)
{
  return &g_array_index (pieces, Piece, i);
}

static gboolean
is_separator (const Piece *piece)
{
  return piece->length == 1 && !is_word (*piece->text);
}

/* The index of a random piece: most often of a word or quoted text. */
static guint
choose (GRand *rand, GArray *pieces)
{
  guint i = 0;
  for (guint tries = 0; tries < 16; tries++)
    {
      i = (guint)g_rand_int_range (rand, 0, (gint32)pieces->len);
      if (!is_separator (piece_at (pieces, i)))
        break;
    }
  return i;
}

/* Puts a nasty value in place of a piece; of a quoted text the quotes stay every other time. */
static void
replace (GRand *rand, GArray *pieces, GStringChunk *made)
{
  Piece *piece = piece_at (pieces, choose (rand, pieces));
  const char *text = nasty[g_rand_int_range (rand, 0, G_N_ELEMENTS (nasty))];
  const gboolean is_quoted = !is_word (*piece->text) && !is_separator (piece);
  g_autofree char *quoted = g_strdup_printf ("%c%s%c", *piece->text, text, *piece->text);
  text = g_string_chunk_insert (made, is_quoted && g_rand_boolean (rand) ? quoted : text);
  *piece = (Piece){ text, strlen (text) };
}

/* Changes a number: most often to one near it, which is accepted more often than one far off. */
static void
renumber (GRand *rand, GArray *pieces, GStringChunk *made)
{
  Piece *piece = piece_at (pieces, choose (rand, pieces));
  const guint skipped = piece->length > 0 && strchr ("\"'", *piece->text) ? 1 : 0;
  if (piece->length <= skipped || !g_ascii_isdigit (piece->text[skipped]))
    return;
  g_autofree char *text = g_strndup (piece->text, piece->length);
  char *end;
  const guint64 old = g_ascii_strtoull (text + skipped, &end, 10);
  const guint64 small = (guint64)g_rand_int_range (rand, 0, 17);
  const guint64 values[]
      = { old + 1, old - 1, old * 2, old / 2, old + small, small, G_GUINT64_CONSTANT (1) << small };
  const guint64 value = values[g_rand_int_range (rand, 0, G_N_ELEMENTS (values))];
  g_autofree char *other
      = g_strdup_printf ("%.*s%" G_GUINT64_FORMAT "%s", (int)skipped, text, value, end);
  *piece = (Piece){ g_string_chunk_insert (made, other), strlen (other) };
}

static void
remove_some (GRand *rand, GArray *pieces)
{
  const guint i = (guint)g_rand_int_range (rand, 0, (gint32)pieces->len);
  const guint n = g_rand_boolean (rand) ? 1 : (guint)g_rand_int_range (rand, 1, 9);
  g_array_remove_range (pieces, i, MIN (n, pieces->len - i));
}

/* Finds the pieces of the line that piece `near` is in, with its line break. */
static void
find_line (GArray *pieces, guint near, guint *out_first, guint *out_n)
{
  guint first = near, end = near;
  while (first > 0 && *piece_at (pieces, first - 1)->text != '\n')
    first--;
  while (end < pieces->len && *piece_at (pieces, end)->text != '\n')
    end++;
  *out_first = first;
  *out_n = MIN (end + 1, pieces->len) - first;
}

/* Repeats a piece, or a line, at another place. */
static void
copy_some (GRand *rand, GArray *pieces)
{
  guint first = choose (rand, pieces), n = 1;
  const guint to = choose (rand, pieces);
  const gboolean is_line = g_rand_boolean (rand);
  guint target = to, unused;
  if (is_line)
    {
      find_line (pieces, first, &first, &n);
      find_line (pieces, to, &target, &unused);
    }
  g_autofree Piece *copy = g_memdup2 (piece_at (pieces, first), n * sizeof (Piece));
  g_array_insert_vals (pieces, target, copy, n);
}

static void
exchange (GRand *rand, GArray *pieces)
{
  Piece *a = piece_at (pieces, choose (rand, pieces));
  Piece *b = piece_at (pieces, choose (rand, pieces));
  const Piece kept = *a;
  *a = *b;
  *b = kept;
}

static gboolean
is_of (const Piece *piece, const char *characters)
{
  return piece->length == 1 && *piece->text && strchr (characters, *piece->text);
}

static guint
skip_blanks (GArray *pieces, guint i)
{
  while (i < pieces->len && is_of (piece_at (pieces, i), " \t\r\n"))
    i++;
  return i;
}

/* The index behind an element that begins at a piece: behind a word, a quoted text or all within
 * brackets; where that is a name with a colon, behind its value, too. */
static guint
end_of_element (GArray *pieces, guint i)
{
  for (;;)
    {
      gint depth = 0;
      for (; i < pieces->len; i++)
        {
          const Piece *piece = piece_at (pieces, i);
          depth += is_of (piece, "[{(") ? 1 : is_of (piece, "]})") ? -1 : 0;
          if (depth <= 0)
            break;
        }
      i = MIN (i + 1, pieces->len);
      const guint next = skip_blanks (pieces, i);
      if (next >= pieces->len || !is_of (piece_at (pieces, next), ":"))
        return i;
      i = skip_blanks (pieces, next + 1);
    }
}

/* The index of any piece, or of a bracket that opens. */
static guint
choose_element (GRand *rand, GArray *pieces)
{
  guint i = choose (rand, pieces);
  if (g_rand_boolean (rand))
    for (guint at = i; at < pieces->len; at++)
      if (is_of (piece_at (pieces, at), "[{("))
        return at;
  return i;
}

/* Copies an element, and a comma, to another place. Every other time it is removed from its own
 * place first, and in a quarter of these not inserted again. */
static void
transplant (GRand *rand, GArray *pieces)
{
  static const Piece comma = { ",", 1 };
  const guint first = choose_element (rand, pieces);
  guint to = choose_element (rand, pieces), n = end_of_element (pieces, first) - first;
  g_autofree Piece *copy = g_memdup2 (piece_at (pieces, first), n * sizeof (Piece));
  if (g_rand_boolean (rand))
    {
      const guint behind = skip_blanks (pieces, first + n);
      const gboolean is_listed = behind < pieces->len && is_of (piece_at (pieces, behind), ",");
      g_array_remove_range (pieces, first, is_listed ? behind + 1 - first : n);
      if (g_rand_int_range (rand, 0, 4) == 0)
        return;
    }
  to = MIN (to, pieces->len);
  g_array_insert_val (pieces, to, comma);
  g_array_insert_vals (pieces, to, copy, n);
}

/* Changes one letter: messages that say which name may have been meant are tried. */
static void
misspell (GRand *rand, GArray *pieces, GStringChunk *made)
{
  Piece *piece = piece_at (pieces, choose (rand, pieces));
  if (piece->length == 0)
    return;
  char *text = g_string_chunk_insert_len (made, piece->text, (gssize)piece->length);
  text[g_rand_int_range (rand, 0, (gint32)piece->length)]
      = (char)g_rand_int_range (rand, ' ', 0x7f);
  piece->text = text;
}

static void
nest (GRand *rand, GArray *pieces, GStringChunk *made)
{
  static const char brackets[] = "[{(";
  const char bracket = brackets[g_rand_int_range (rand, 0, 3)];
  const gboolean is_deep = g_rand_int_range (rand, 0, 8) == 0;
  const gsize depth = is_deep ? DEEP : (gsize)g_rand_int_range (rand, 1, 64);
  g_autofree char *text = g_strnfill (depth, bracket);
  const Piece piece = { g_string_chunk_insert (made, text), depth };
  g_array_insert_val (pieces, choose (rand, pieces), piece);
}

static void
change (GRand *rand, GArray *pieces, GStringChunk *made)
{
  switch (g_rand_int_range (rand, 0, 24))
    {
    case 0:
    case 1:
      remove_some (rand, pieces);
      break;
    case 2:
    case 3:
      copy_some (rand, pieces);
      break;
    case 4:
    case 5:
      exchange (rand, pieces);
      break;
    case 6:
    case 7:
      misspell (rand, pieces, made);
      break;
    case 8:
      nest (rand, pieces, made);
      break;
    case 9:
    case 10:
    case 11:
      transplant (rand, pieces);
      break;
    case 12:
    case 13:
    case 14:
    case 15:
    case 16:
      renumber (rand, pieces, made);
      break;
    default:
      replace (rand, pieces, made);
    }
}

char *
fuzz_mutate (const char *text, gsize length, guint32 seed, gsize *out_length)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (GArray) pieces = split (text, length);
  GStringChunk *made = g_string_chunk_new (256);
  GString *out = g_string_new (NULL);
  const gint changes = g_rand_boolean (rand) ? 1 : g_rand_int_range (rand, 1, MOST_CHANGES + 1);
  for (gint i = 0; i < changes && pieces->len > 0; i++)
    change (rand, pieces, made);
  for (guint i = 0; i < pieces->len; i++)
    g_string_append_len (out, piece_at (pieces, i)->text, (gssize)piece_at (pieces, i)->length);
  g_string_chunk_free (made);
  *out_length = out->len;
  return g_string_free (out, FALSE);
}

guint
fuzz_count_words (const char *text, gsize length)
{
  g_autoptr (GArray) pieces = split (text, length);
  guint n = 0;
  for (guint i = 0; i < pieces->len; i++)
    n += !is_separator (piece_at (pieces, i));
  return n;
}

char *
fuzz_empty (const char *text, gsize length, guint word, gsize *out_length)
{
  g_autoptr (GArray) pieces = split (text, length);
  guint i = 0;
  for (; i < pieces->len && (is_separator (piece_at (pieces, i)) || word-- > 0);)
    i++;
  if (i == pieces->len)
    return NULL;
  const Piece *piece = piece_at (pieces, i);
  const gsize kept = is_word (*piece->text) ? 0 : 1; /* a quote */
  GString *out = g_string_new_len (text, piece->text + kept - text);
  const char *const behind = piece->text + MAX (piece->length, 2 * kept) - kept;
  g_string_append_len (out, behind, text + length - behind);
  *out_length = out->len;
  return g_string_free (out, FALSE);
}
