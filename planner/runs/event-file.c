/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/event-file.h"

#include "planner/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The checksum is CRC-32C with reflected bits, then rotated and shifted, so that checksums of data
 * that contain checksums stay useful. */
#define CRC_POLYNOMIAL 0x82f63b78u
#define CRC_MASK 0xa282ead8u

/* Encodings of the messages' fields. */
typedef enum
{
  WIRE_VARINT,
  WIRE_FIXED64,
  WIRE_BYTES,
  WIRE_FIXED32 = 5
} Wire;

enum
{
  EVENT_WALL_TIME = 1,
  EVENT_STEP = 2,
  EVENT_FILE_VERSION = 3,
  EVENT_SUMMARY = 5,
  SUMMARY_VALUE = 1,
  VALUE_TAG = 1,
  VALUE_SIMPLE = 2
};

struct _PlanEventFile
{
  char *path;
  FILE *file;
  guint32 crc_of_byte[256];
};

static void
fill_table (guint32 *table)
{
  for (guint32 byte = 0; byte < 256; byte++)
    {
      guint32 crc = byte;
      for (guint bit = 0; bit < 8; bit++)
        crc = crc & 1 ? crc >> 1 ^ CRC_POLYNOMIAL : crc >> 1;
      table[byte] = crc;
    }
}

static guint32
checksum (const PlanEventFile *self, const guint8 *data, gsize length)
{
  guint32 crc = G_MAXUINT32;
  for (gsize i = 0; i < length; i++)
    crc = crc >> 8 ^ self->crc_of_byte[(crc ^ data[i]) & 0xff];
  crc = ~crc;
  return (crc >> 15 | crc << 17) + CRC_MASK;
}

static void
append_varint (GByteArray *out, guint64 value)
{
  do
    {
      const guint8 byte = (guint8)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
      g_byte_array_append (out, &byte, 1);
      value >>= 7;
    }
  while (value > 0);
}

static void
append_key (GByteArray *out, guint field, Wire wire)
{
  append_varint (out, field << 3 | wire);
}

static void
append_bytes (GByteArray *out, guint field, const void *data, gsize length)
{
  append_key (out, field, WIRE_BYTES);
  append_varint (out, length);
  g_byte_array_append (out, data, (guint)length);
}

static void
append_32 (GByteArray *out, guint32 value)
{
  value = GUINT32_TO_LE (value);
  g_byte_array_append (out, (const guint8 *)&value, sizeof value);
}

static void
append_64 (GByteArray *out, guint64 value)
{
  value = GUINT64_TO_LE (value);
  g_byte_array_append (out, (const guint8 *)&value, sizeof value);
}

static void
append_double (GByteArray *out, guint field, double value)
{
  guint64 bits;
  memcpy (&bits, &value, sizeof bits);
  append_key (out, field, WIRE_FIXED64);
  append_64 (out, bits);
}

static void
append_scalar (GByteArray *out, const PlanEventScalar *scalar)
{
  g_autoptr (GByteArray) value = g_byte_array_new ();
  const float number = (float)scalar->value;
  guint32 bits;
  memcpy (&bits, &number, sizeof bits);
  append_bytes (value, VALUE_TAG, scalar->tag, strlen (scalar->tag));
  append_key (value, VALUE_SIMPLE, WIRE_FIXED32);
  append_32 (value, bits);
  append_bytes (out, SUMMARY_VALUE, value->data, value->len);
}

/* Writes one record and flushes it. */
static gboolean
write_record (PlanEventFile *self, const GByteArray *event, GError **error)
{
  g_autoptr (GByteArray) record = g_byte_array_new ();
  append_64 (record, event->len);
  append_32 (record, checksum (self, record->data, record->len));
  g_byte_array_append (record, event->data, event->len);
  append_32 (record, checksum (self, event->data, event->len));
  if (fwrite (record->data, 1, record->len, self->file) == record->len && fflush (self->file) == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", self->path, g_strerror (errno));
  return FALSE;
}

static gboolean
write_version (PlanEventFile *self, double seconds, GError **error)
{
  static const char version[] = "brain.Event:2";
  g_autoptr (GByteArray) event = g_byte_array_new ();
  append_double (event, EVENT_WALL_TIME, seconds);
  append_bytes (event, EVENT_FILE_VERSION, version, sizeof version - 1);
  return write_record (self, event, error);
}

PlanEventFile *
plan_event_file_new (const char *folder, GError **error)
{
  g_autoptr (PlanEventFile) self = g_new0 (PlanEventFile, 1);
  const gint64 now_us = g_get_real_time ();
  fill_table (self->crc_of_byte);
  /* TensorBoard wants "tfevents" in the name, and reads the files of a folder in the order of their
   * names */
  self->path = g_strdup_printf ("%s/events.out.tfevents.%010" G_GINT64_FORMAT ".%s.%d", folder,
                                now_us / G_USEC_PER_SEC, g_get_host_name (), (int)getpid ());
  const gboolean has_folder = g_mkdir_with_parents (folder, 0777) == 0;
  if (!has_folder || !(self->file = fopen (self->path, "wbx")))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", has_folder ? self->path : folder,
                   g_strerror (errno));
      return NULL;
    }
  return write_version (self, 1e-6 * (double)now_us, error) ? g_steal_pointer (&self) : NULL;
}

void
plan_event_file_free (PlanEventFile *self)
{
  if (!self)
    return;
  if (self->file)
    fclose (self->file);
  g_free (self->path);
  g_free (self);
}

const char *
plan_event_file_path (const PlanEventFile *self)
{
  return self->path;
}

gboolean
plan_event_file_add (PlanEventFile *self, double seconds, gint64 step,
                     const PlanEventScalar *scalars, guint n_scalars, GError **error)
{
  g_autoptr (GByteArray) event = g_byte_array_new ();
  g_autoptr (GByteArray) summary = g_byte_array_new ();
  append_double (event, EVENT_WALL_TIME, seconds);
  append_key (event, EVENT_STEP, WIRE_VARINT);
  append_varint (event, (guint64)step);
  for (guint i = 0; i < n_scalars; i++)
    append_scalar (summary, &scalars[i]);
  append_bytes (event, EVENT_SUMMARY, summary->data, summary->len);
  return write_record (self, event, error);
}
