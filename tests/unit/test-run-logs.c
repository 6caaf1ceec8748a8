/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of runs: events as TensorBoard reads them, read here by a reader of their format that shares
 * no code with their writer; and lines of steps. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/runs/event-file.h"
#include "planner/runs/step-log.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- events ------------------------------------------------------------------------------- */

/* CRC-32C by its definition: the remainder of a long division, bit by bit. */
static guint32
masked_crc (const guint8 *data, gsize length)
{
  guint32 crc = 0xffffffff;
  for (gsize i = 0; i < 8 * length; i++)
    {
      const guint32 bit = data[i / 8] >> i % 8 & 1;
      crc = (crc & 1) != bit ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

static guint64
little_endian (const guint8 *at, guint bytes)
{
  guint64 value = 0;
  for (guint i = 0; i < bytes; i++)
    value |= (guint64)at[i] << 8 * i;
  return value;
}

static guint64
read_varint (const guint8 **at)
{
  guint64 value = 0;
  for (guint shift = 0;; shift += 7)
    {
      const guint8 byte = *(*at)++;
      value |= (guint64)(byte & 0x7f) << shift;
      if (byte < 0x80)
        return value;
    }
}

/* Appends "step N", "version TEXT" and "TAG VALUE" lines. */
static void
print_message (const guint8 *at, const guint8 *end, guint depth, GString *out)
{
  g_autofree char *tag = NULL;
  while (at < end)
    {
      const guint64 key = read_varint (&at);
      const guint field = (guint)(key >> 3);
      switch (key & 7)
        {
        case 0:
          {
            const guint64 value = read_varint (&at);
            ck_assert (depth == 0 && field == 2);
            g_string_append_printf (out, "step %" G_GUINT64_FORMAT "\n", value);
            break;
          }
        case 1:
          {
            const guint64 bits = little_endian (at, 8);
            double seconds;
            memcpy (&seconds, &bits, sizeof seconds);
            ck_assert (depth == 0 && field == 1 && seconds > 1e9 && seconds < 1e11);
            at += 8;
            break;
          }
        case 2:
          {
            const guint64 length = read_varint (&at);
            ck_assert (length <= (guint64)(end - at));
            if (depth == 2)
              tag = g_strndup ((const char *)at, length);
            else if (field == 3)
              g_string_append_printf (out, "version %.*s\n", (int)length, (const char *)at);
            else
              print_message (at, at + length, depth + 1, out);
            at += length;
            break;
          }
        case 5:
          {
            const guint32 bits = (guint32)little_endian (at, 4);
            float value;
            memcpy (&value, &bits, sizeof value);
            ck_assert (depth == 2 && field == 2 && tag != NULL);
            g_string_append_printf (out, "%s %.9g\n", tag, (double)value);
            at += 4;
            break;
          }
        default:
          ck_abort_msg ("wire type %d", (int)(key & 7));
        }
    }
  ck_assert (at == end);
}

static char *
read_events (const char *path)
{
  g_autofree char *text = NULL;
  gsize length;
  GString *out = g_string_new (NULL);
  ck_assert (g_file_get_contents (path, &text, &length, NULL));
  const guint8 *data = (const guint8 *)text, *const end = data + length;
  while (data < end)
    {
      ck_assert (end - data >= 16);
      const guint64 n = little_endian (data, 8);
      ck_assert_uint_eq (little_endian (data + 8, 4), masked_crc (data, 8));
      ck_assert ((guint64)(end - data) >= 16 + n);
      ck_assert_uint_eq (little_endian (data + 12 + n, 4), masked_crc (data + 12, n));
      print_message (data + 12, data + 12 + n, 0, out);
      data += 16 + n;
    }
  return g_string_free (out, FALSE);
}

/* The masked checksum of "123456789" is known: its CRC-32C is 0xe3069283. */
START_TEST (checksum_is_the_known_one)
{
  const guint32 known = 0xe3069283;
  ck_assert_uint_eq (masked_crc ((const guint8 *)"123456789", 9),
                     (known >> 15 | known << 17) + 0xa282ead8);
}
END_TEST

START_TEST (events_are_read_back)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("test-run-logs-XXXXXX", NULL);
  g_autofree char *inner = g_build_filename (folder, "runs", "a", NULL);
  g_autofree char *middle = g_build_filename (folder, "runs", NULL);
  g_autoptr (PlanEventFile) file = plan_event_file_new (inner, &error);
  ck_assert_msg (file != NULL, "%s", error ? error->message : "");
  const PlanEventScalar first[] = { { "loss", 5.5 }, { "grad_norm", 0.1 } };
  const PlanEventScalar second[] = { { "loss", -1e-3 } };
  ck_assert (plan_event_file_add (file, 1.7e9, 1, first, 2, &error));
  ck_assert (plan_event_file_add (file, 1.7e9, 300, second, 1, &error));
  g_autofree char *path = g_strdup (plan_event_file_path (file));
  g_autofree char *events = read_events (path); /* while the file is still being written */
  ck_assert_str_eq (events, "version brain.Event:2\n"
                            "step 1\nloss 5.5\ngrad_norm 0.100000001\n"
                            "step 300\nloss -0.00100000005\n");
  unlink (path);
  rmdir (inner);
  rmdir (middle);
  rmdir (folder);
}
END_TEST

START_TEST (no_folder_is_an_error)
{
  g_autoptr (GError) error = NULL;
  ck_assert (plan_event_file_new ("/dev/null/runs", &error) == NULL);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_IO));
  ck_assert (g_str_has_prefix (error->message, "/dev/null/runs: "));
}
END_TEST

/* --- steps -------------------------------------------------------------------------------- */

#define RUN "{\"run\":{\"uid\":\"a\",\"ranks\":2,\"params_id\":null}}\n"
#define STEP(n) "{\"step\":" #n ",\"loss\":5.5,\"grad_norm\":null,\"step_ns\":7}\n"

START_TEST (runs_and_steps_are_read)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) runs = plan_step_log_read (
      RUN STEP (1) "{\"step\":3,\"loss\":2,\"step_ns\":8,\"eval_loss\":4.25,\"lr\":1}\n"
                   "{\"end\":{\"state\":\"failed\",\"message\":\"why\",\"measured_step_ns\":9}}\n"
                   "\n" RUN STEP (4) "{\"step\":5,\"lo",
      "l", &error);
  ck_assert_msg (runs != NULL, "%s", error ? error->message : "");
  ck_assert_uint_eq (runs->len, 2);
  const PlanLoggedRun *one = runs->pdata[0], *two = runs->pdata[1];
  ck_assert_str_eq (plan_logged_run_cell (one, "uid"), "a");
  ck_assert_str_eq (plan_logged_run_cell (one, "ranks"), "2");
  ck_assert (plan_logged_run_cell (one, "params_id") == NULL);
  ck_assert_uint_eq (one->steps->len, 2);
  const PlanLoggedStep *a = &g_array_index (one->steps, PlanLoggedStep, 0), *b = a + 1;
  ck_assert (a->step == 1 && a->step_ns == 7 && a->loss == 5.5 && isnan (a->grad_norm)
             && isnan (a->eval_loss));
  ck_assert (b->step == 3 && b->step_ns == 8 && b->loss == 2 && b->eval_loss == 4.25);
  ck_assert_str_eq (one->state, "failed");
  ck_assert_str_eq (one->message, "why");
  ck_assert_int_eq (one->measured_ns, 9);
  ck_assert (two->state == NULL && two->steps->len == 1 && two->line == 6); /* the run was killed */
}
END_TEST

static const char *const wrong[][2] = {
  { STEP (1), "l:1: no run has begun here: {\"run\": {...}} is missing" },
  { RUN "{\"end\":{\"state\":\"done\",\"measured_step_ns\":0}}\n" STEP (1),
    "l:3: no run has begun here: {\"run\": {...}} is missing" },
  { RUN "[1]\n", "l:2: this is no object of JSON" },
  { RUN "{\"step\":1,\"lo\n" STEP (2), "l:2: this is no object of JSON" },
  { "{\"run\":{\"uid\":1.5}}\n", "l:1: run.uid: is neither a text nor a whole number" },
  { RUN "{\"loss\":1,\"step_ns\":1}\n",
    "l:2: step: must be a whole number from 1 to 9007199254740992" },
  { RUN STEP (2) STEP (2), "l:3: step: must be a whole number from 3 to 9007199254740992" },
  { RUN "{\"step\":1}\n", "l:2: step_ns: must be a whole number from 0 to 9007199254740992" },
  { RUN "{\"step\":1,\"step_ns\":-1}\n",
    "l:2: step_ns: must be a whole number from 0 to 9007199254740992" },
  { RUN STEP (9223372036854775807) STEP (9223372036854775807),
    "l:2: step: must be a whole number from 1 to 9007199254740992" },
  { RUN "{\"step\":1,\"step_ns\":9223372036854775807}\n",
    "l:2: step_ns: must be a whole number from 0 to 9007199254740992" },
  { RUN "{\"step\":1,\"step_ns\":1,\"loss\":\"low\"}\n", "l:2: loss: must be a number, or null" },
  { RUN "{\"step\":1,\"step_ns\":1,\"los\":1}\n",
    "l:2: 'los' is nothing that a step has: these are step, step_ns, loss, grad_norm, eval_loss, "
    "lr, tokens_per_s" },
  { RUN "{\"end\":{\"state\":\"over\"}}\n", "l:2: end.state: must be done or failed" },
  { RUN "{\"end\":{\"state\":\"done\",\"message\":1}}\n",
    "l:2: end.message: must be a text, or null" },
  { RUN "{\"end\":{\"state\":\"done\"}}\n",
    "l:2: measured_step_ns: must be a whole number from 0 to 9007199254740992" },
};

START_TEST (wrong_lines_are_named)
{
  g_autoptr (GError) error = NULL;
  ck_assert (plan_step_log_read (wrong[_i][0], "l", &error) == NULL);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_str_eq (error->message, wrong[_i][1]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("run-logs");
  TCase *events = tcase_create ("events"), *steps = tcase_create ("steps");
  tcase_add_test (events, checksum_is_the_known_one);
  tcase_add_test (events, events_are_read_back);
  tcase_add_test (events, no_folder_is_an_error);
  tcase_add_test (steps, runs_and_steps_are_read);
  tcase_add_loop_test (steps, wrong_lines_are_named, 0, G_N_ELEMENTS (wrong));
  suite_add_tcase (suite, events);
  suite_add_tcase (suite, steps);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
