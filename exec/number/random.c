/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/random.h"

#include "exec/number/wide.h"

#include <string.h>

#define ROUNDS 10
#define PER_BLOCK 4 /* numbers of a counter */
#define BLOCKS 16   /* counters whose numbers are made at once */

typedef struct
{
  guint32 at[PER_BLOCK][BLOCKS]; /* at[i][c]: number i of counter c */
} Words;

/* Numbers of counters that differ in their first word, which begins at counter[0]. Always of
 * BLOCKS counters, so that loops have a fixed length. */
static EXEC_WIDE void
make_blocks (const guint32 *key, const guint32 *counter, Words *out)
{
  guint32 left = key[0], right = key[1];
  guint32 a[BLOCKS], b[BLOCKS], c[BLOCKS], d[BLOCKS];
  for (guint i = 0; i < BLOCKS; i++)
    {
      a[i] = counter[0] + i;
      b[i] = counter[1];
      c[i] = counter[2];
      d[i] = counter[3];
    }
  for (guint round = 0; round < ROUNDS; round++)
    {
      for (guint i = 0; i < BLOCKS; i++)
        {
          const guint64 x = (guint64)0xd2511f53u * a[i], y = (guint64)0xcd9e8d57u * c[i];
          a[i] = (guint32)(y >> 32) ^ b[i] ^ left;
          b[i] = (guint32)y;
          c[i] = (guint32)(x >> 32) ^ d[i] ^ right;
          d[i] = (guint32)x;
        }
      left += 0x9e3779b9u;
      right += 0xbb67ae85u;
    }
  memcpy (out->at[0], a, sizeof a);
  memcpy (out->at[1], b, sizeof b);
  memcpy (out->at[2], c, sizeof c);
  memcpy (out->at[3], d, sizeof d);
}

void
exec_random_block (const guint32 key[PLAN_RANDOM_KEY], const guint32 counter[4], guint32 out[4])
{
  Words words;
  make_blocks (key, counter, &words);
  for (guint i = 0; i < PER_BLOCK; i++)
    out[i] = words.at[i][0];
}

void
exec_random_key (guint64 seed, gint64 layer, guint32 out[PLAN_RANDOM_KEY])
{
  const guint32 key[] = { (guint32)seed, (guint32)(seed >> 32) };
  const guint32 counter[] = { (guint32)layer, (guint32)((guint64)layer >> 32), 0, 0 };
  guint32 block[PER_BLOCK];
  exec_random_block (key, counter, block);
  for (guint i = 0; i < PLAN_RANDOM_KEY; i++)
    out[i] = block[i];
}

ExecDropout
exec_dropout (const void *key, guint32 site, double rate)
{
  return (ExecDropout){ .key = key,
                        .site = site,
                        .limit = rate < 1 ? (guint32)(rate * 4294967296.0 + 0.5) : G_MAXUINT32,
                        .scale = rate < 1 ? (float)(1 / (1 - rate)) : 0 };
}

static EXEC_WIDE void
choose (const Words *words, guint32 limit, float scale, float *out)
{
  float made[PER_BLOCK * BLOCKS];
  const guint32 *word = words->at[0];
  for (guint i = 0; i < G_N_ELEMENTS (made); i++)
    made[i] = word[i] < limit ? 0 : scale;
  for (guint c = 0; c < BLOCKS; c++)
    for (guint i = 0; i < PER_BLOCK; i++)
      out[c * PER_BLOCK + i] = made[i * BLOCKS + c];
}

void
exec_dropout_factors (const ExecDropout *self, guint64 token, guint64 first, guint64 count,
                      float *out)
{
  guint32 counter[]
      = { (guint32)(first / PER_BLOCK), (guint32)token, (guint32)(token >> 32), self->site };
  Words words;
  float made[PER_BLOCK * BLOCKS];
  guint64 skipped = first % PER_BLOCK;
  for (guint64 done = 0, some; done < count; done += some)
    {
      some = MIN (G_N_ELEMENTS (made) - skipped, count - done);
      make_blocks (self->key, counter, &words);
      choose (&words, self->limit, self->scale, made);
      memcpy (out + done, made + skipped, some * sizeof *out);
      counter[0] += BLOCKS;
      skipped = 0;
    }
}
