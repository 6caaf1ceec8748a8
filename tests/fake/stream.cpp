/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, and graphs captured from them. */
#include "config.h"

#include "tests/fake/device.hpp"

#include <algorithm>
#include <set>

namespace fake
{

/* A captured operation; nodes are in the order of issue. `slot` counts the recordings of events. */
struct Node
{
  enum Kind
  {
    WORK,
    APART, /* work that must not hold the runtime's lock: see fake_order_keep */
    RECORD,
    WAIT
  } kind;
  unsigned stream, slot;
  std::string name, details;
  Work work;
  std::function<cudaError_t (Stream *stream)> apart;
  std::shared_ptr<Watched> watched = nullptr; /* the op that it is of */
};

struct Graph
{
  Stream *origin;
  enum cudaStreamCaptureMode mode;
  GThread *thread;
  bool is_invalid = false;
  unsigned handles = 0; /* of the program: it may free the graph while events still refer to it */
  std::vector<Node> nodes;
  std::map<Stream *, Clock> clocks; /* of the streams that are captured, in nodes */
  std::vector<Clock> recorded;      /* by slot */
};

}

struct CUgraph_st
{
  std::shared_ptr<fake::Graph> graph;
};

/* Runs on streams of its own: what it does is ordered as captured, and as a whole after what was in
 * the stream that it is launched into, and after its last launch. */
struct CUgraphExec_st
{
  std::shared_ptr<fake::Graph> graph;
  std::map<unsigned, fake::Stream *> streams; /* by number of the captured one */
};

namespace fake
{

namespace
{

Stream *
make_stream (unsigned device, unsigned flags, int priority)
{
  auto stream = std::make_unique<Stream> ();

  stream->number = (unsigned)runtime.streams.size ();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  runtime.streams.push_back (std::move (stream));
  return runtime.streams.back ().get ();
}

cudaError_t
run (Stream *stream, const std::string &name, const std::string &details, unsigned shown,
     const Work &work)
{
  Op op = begin (stream, name);

  add_to_log ("%s%s stream %u", name.c_str (), details.c_str (), shown);
  return result (work (op));
}

void
add_node (Stream *stream, Node node)
{
  Graph &graph = *stream->capture;
  Clock &clock = graph.clocks[stream];

  node.stream = stream->number;
  node.watched = watched_now ();
  if (clock.at.size () <= stream->number)
    clock.at.resize (stream->number + 1);
  clock.at[stream->number]++;
  graph.nodes.push_back (std::move (node));
}

/* A call that a stream under capture does not take ends the capture. */
cudaError_t
invalidate (Graph &graph, cudaError_t error)
{
  graph.is_invalid = true;
  return result (error);
}

}

void
make_streams ()
{
  for (unsigned device = 0; device < runtime.machine.devices; device++)
    make_stream (device, cudaStreamDefault, 0);
}

void
forget_streams ()
{
  for (const auto &stream : runtime.streams)
    stream->capture = nullptr;
}

void
check_streams ()
{
  for (size_t i = runtime.machine.devices; i < runtime.streams.size (); i++)
    if (!runtime.streams[i]->is_destroyed && !runtime.streams[i]->is_of_graph)
      report ("stream " + std::to_string (i) + " is never destroyed");
  for (const auto &event : runtime.events)
    if (!event->is_destroyed)
      report ("event " + std::to_string (event->number) + " is never destroyed");
}

Stream *
stream_of (cudaStream_t stream)
{
  if (stream == nullptr || stream == (cudaStream_t)1) /* cudaStreamLegacy */
    return runtime.streams[current_device ()].get ();
  for (const auto &known : runtime.streams)
    if (known.get () == stream)
      {
        if (known->is_destroyed)
          report ("stream " + std::to_string (known->number) + " is used, but destroyed");
        return known->is_destroyed ? nullptr : known.get ();
      }
  report ("a stream is used that there is not");
  return nullptr;
}

bool
is_capturing (cudaStream_t stream)
{
  Stream *self = stream_of (stream);

  return self != nullptr && self->capture != nullptr;
}

bool
forbids (cudaError_t *out_error)
{
  for (const auto &stream : runtime.streams)
    {
      Graph *graph = stream->capture.get ();

      if (graph != nullptr
          && (graph->mode == cudaStreamCaptureModeGlobal
              || (graph->mode == cudaStreamCaptureModeThreadLocal
                  && graph->thread == g_thread_self ())))
        {
          *out_error = invalidate (*graph, cudaErrorStreamCaptureUnsupported);
          return true;
        }
    }
  return false;
}

cudaError_t
submit (cudaStream_t stream, const std::string &name, Work work, const std::string &details)
{
  Stream *self = stream_of (stream);

  if (self == nullptr)
    return result (cudaErrorInvalidResourceHandle);
  if (self->capture != nullptr)
    {
      add_node (self, { Node::WORK, 0, 0, name, details, std::move (work), nullptr });
      return cudaSuccess;
    }
  queue_up (self);
  if (self->number == self->device)
    for (const auto &other : runtime.streams)
      if (other->capture != nullptr && other->device == self->device
          && !(other->flags & cudaStreamNonBlocking))
        return invalidate (*other->capture, cudaErrorStreamCaptureImplicit);
  return run (self, name, details, self->number, work);
}

/* --- events ------------------------------------------------------------------------------- */

namespace
{

Event *
event_of (cudaEvent_t event)
{
  for (const auto &known : runtime.events)
    if (known.get () == event)
      {
        if (known->is_destroyed)
          report ("event " + std::to_string (known->number) + " is used, but destroyed");
        return known->is_destroyed ? nullptr : known.get ();
      }
  report ("an event is used that there is not");
  return nullptr;
}

/* A wait in a capture: the stream goes on after the recording of the event, and becomes part of the
 * event's capture. */
cudaError_t
capture_wait (Stream *stream, Event *event)
{
  std::shared_ptr<Graph> graph = event->capture;

  if (graph == nullptr)
    return event->is_recorded ? invalidate (*stream->capture, cudaErrorStreamCaptureIsolation)
                              : cudaSuccess;
  if (graph->origin->capture != graph || (stream->capture != nullptr && stream->capture != graph))
    return result (cudaErrorStreamCaptureIsolation);
  stream->capture = graph;
  graph->clocks[stream].join (graph->recorded[event->slot]);
  add_node (stream, { Node::WAIT, 0, event->slot, "", "", nullptr, nullptr });
  return cudaSuccess;
}

void
capture_record (Stream *stream, Event *event)
{
  Graph &graph = *stream->capture;

  event->capture = stream->capture;
  event->slot = (unsigned)graph.recorded.size ();
  add_node (stream, { Node::RECORD, 0, event->slot, "", "", nullptr, nullptr });
  graph.recorded.push_back (graph.clocks[stream]);
}

/* The event, or NULL when the host cannot ask for it. */
Event *
event_for_host (cudaEvent_t event, cudaError_t *out_error)
{
  Event *self;

  if (fails (out_error))
    return nullptr;
  self = event_of (event);
  *out_error = cudaErrorInvalidResourceHandle;
  if (self != nullptr && self->capture != nullptr)
    {
      *out_error = cudaErrorCapturedEvent;
      self = nullptr;
    }
  if (self == nullptr)
    result (*out_error);
  return self;
}

}

/* The stream that this one waits for, perhaps itself, while it is stalled. */
Stream *
stalled (Stream *stream)
{
  if (stream->is_stalled)
    return stream;
  return stream->behind != nullptr && stream->behind->is_stalled ? stream->behind : nullptr;
}

/* Operations that a stream takes behind one that does not end. */
const unsigned QUEUE = 1024;

/* Makes room for another operation. If there is none, the host waits until the stream goes on. */
void
queue_up (Stream *stream)
{
  if (stalled (stream) == nullptr)
    stream->queued = 0;
  else if (stream->queued++ >= QUEUE)
    while (stalled (stream) != nullptr)
      {
        unlock_runtime ();
        g_usleep (100);
        lock_runtime ();
      }
}

/* A host that waits for what does not end goes on with an error. */
cudaError_t
hangs (const char *what)
{
  report (std::string ("the host waits without end for ") + what + ", which is stalled");
  return result (cudaErrorUnknown);
}

}

using namespace fake;

void
fake_order_stall (cudaStream_t stream, gboolean is_stalled)
{
  Lock lock;
  Stream *self = stream_of (stream);

  if (self != nullptr)
    self->is_stalled = is_stalled;
}

cudaError_t
cudaEventCreateWithFlags (cudaEvent_t *out, unsigned int flags)
{
  Lock lock;
  cudaError_t error;
  auto event = std::make_unique<Event> ();

  if (fails (&error))
    return error;
  if (flags > (cudaEventBlockingSync | cudaEventDisableTiming))
    return result (cudaErrorInvalidValue);
  event->number = (unsigned)runtime.events.size () + 1;
  event->device = current_device ();
  event->flags = flags;
  *out = event.get ();
  runtime.events.push_back (std::move (event));
  return cudaSuccess;
}

cudaError_t
cudaEventCreate (cudaEvent_t *out)
{
  return cudaEventCreateWithFlags (out, cudaEventDefault);
}

cudaError_t
cudaEventDestroy (cudaEvent_t event)
{
  Lock lock;
  Event *self = event_of (event);

  if (self == nullptr)
    return result (cudaErrorInvalidResourceHandle);
  self->is_destroyed = true;
  return result (cudaSuccess);
}

cudaError_t
cudaEventRecord (cudaEvent_t event, cudaStream_t stream)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  Event *self = event_of (event);
  Stream *of = stream_of (stream);
  if (self == nullptr || of == nullptr || self->device != of->device)
    return result (cudaErrorInvalidResourceHandle);
  if (of->capture != nullptr)
    {
      capture_record (of, self);
      return cudaSuccess;
    }
  queue_up (of);
  run (of, "record", "", of->number, [=] (Op &op) {
    self->capture = nullptr;
    self->is_recorded = true;
    self->behind = stalled (op.stream);
    self->clock = op.stream->clock;
    self->time_ms = (double)runtime.operations.size () / 1000;
    return cudaSuccess;
  });
  return cudaSuccess;
}

cudaError_t
cudaStreamWaitEvent (cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  Event *self = event_of (event);
  Stream *by = stream_of (stream);
  if (self == nullptr || by == nullptr || flags != 0)
    return result (flags != 0 ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  if (by->capture != nullptr || self->capture != nullptr)
    return capture_wait (by, self);
  if (self->is_recorded)
    by->clock.join (self->clock);
  if (self->behind != nullptr)
    by->behind = self->behind;
  add_to_log ("wait stream %u", by->number);
  return cudaSuccess;
}

cudaError_t
cudaEventSynchronize (cudaEvent_t event)
{
  Lock lock;
  cudaError_t error;
  Event *self = event_for_host (event, &error);

  if (self == nullptr)
    return error;
  if (self->behind != nullptr && self->behind->is_stalled)
    return hangs ("an event");
  host_learns (self->clock);
  add_to_log ("synchronize event %u", self->number);
  return cudaSuccess;
}

cudaError_t
cudaEventQuery (cudaEvent_t event)
{
  Lock lock;
  cudaError_t error;
  Event *self = event_for_host (event, &error);

  if (self == nullptr)
    return error;
  if (self->behind != nullptr && self->behind->is_stalled)
    return cudaErrorNotReady;
  host_learns (self->clock);
  return cudaSuccess;
}

/* Time goes by with the operations issued: a microsecond each. */
cudaError_t
cudaEventElapsedTime (float *ms, cudaEvent_t begin, cudaEvent_t end)
{
  Lock lock;
  cudaError_t error;
  Event *from = event_for_host (begin, &error);
  Event *to = from != nullptr ? event_for_host (end, &error) : nullptr;
  Clock both;

  if (to == nullptr)
    return error;
  if (!from->is_recorded || !to->is_recorded || (from->flags | to->flags) & cudaEventDisableTiming)
    return result (cudaErrorInvalidResourceHandle);
  both = from->clock;
  both.join (to->clock);
  for (size_t i = 0; i < both.at.size (); i++)
    if (!host_clock ().knows ((unsigned)i, both.at[i]))
      return result (cudaErrorNotReady);
  *ms = (float)(to->time_ms - from->time_ms);
  return cudaSuccess;
}

/* --- streams ------------------------------------------------------------------------------ */

cudaError_t
cudaStreamCreateWithPriority (cudaStream_t *out, unsigned int flags, int priority)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  if (flags > cudaStreamNonBlocking)
    return result (cudaErrorInvalidValue);
  *out = make_stream (current_device (), flags, priority);
  return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags (cudaStream_t *out, unsigned int flags)
{
  return cudaStreamCreateWithPriority (out, flags, 0);
}

cudaError_t
cudaStreamCreate (cudaStream_t *out)
{
  return cudaStreamCreateWithPriority (out, cudaStreamDefault, 0);
}

cudaError_t
cudaStreamDestroy (cudaStream_t stream)
{
  Lock lock;
  Stream *self = stream_of (stream);

  if (self == nullptr || self->number < runtime.machine.devices)
    return result (cudaErrorInvalidResourceHandle);
  self->is_destroyed = true;
  return result (cudaSuccess);
}

cudaError_t
cudaStreamSynchronize (cudaStream_t stream)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  Stream *self = stream_of (stream);
  if (self == nullptr)
    return result (cudaErrorInvalidResourceHandle);
  if (self->capture != nullptr)
    return invalidate (*self->capture, cudaErrorStreamCaptureUnsupported);
  if (stalled (self) != nullptr)
    return hangs ("a stream");
  host_learns (self->clock);
  add_to_log ("synchronize stream %u", self->number);
  return cudaSuccess;
}

cudaError_t
cudaStreamQuery (cudaStream_t stream)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  Stream *self = stream_of (stream);
  if (self == nullptr)
    return result (cudaErrorInvalidResourceHandle);
  if (self->capture != nullptr)
    return invalidate (*self->capture, cudaErrorStreamCaptureUnsupported);
  if (stalled (self) != nullptr)
    return cudaErrorNotReady;
  host_learns (self->clock);
  return cudaSuccess;
}

cudaError_t
cudaDeviceSynchronize (void)
{
  Lock lock;
  cudaError_t error;
  Clock all;

  if (fails (&error) || forbids (&error))
    return error;
  for (const auto &stream : runtime.streams)
    if (stream->device == current_device () && stalled (stream.get ()) != nullptr)
      return hangs ("a device");
  for (const auto &stream : runtime.streams)
    if (stream->device == current_device ())
      all.join (stream->clock);
  host_learns (all);
  add_to_log ("synchronize device %u", current_device ());
  return cudaSuccess;
}

cudaError_t
cudaLaunchHostFunc (cudaStream_t stream, cudaHostFn_t function, void *data)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  return submit (stream, "host function", [=] (Op &op) {
    settle (op.stream->clock);
    call_back (function, data);
    return cudaSuccess;
  });
}

/* --- graphs ------------------------------------------------------------------------------- */

cudaError_t
cudaStreamBeginCapture (cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  Stream *self = stream_of (stream);
  if (self == nullptr)
    return result (cudaErrorInvalidResourceHandle);
  if (self->capture != nullptr || self->number < runtime.machine.devices)
    return result (self->capture != nullptr ? cudaErrorInvalidValue
                                            : cudaErrorStreamCaptureUnsupported);
  self->capture = std::make_shared<Graph> ();
  self->capture->origin = self;
  self->capture->mode = mode;
  self->capture->thread = g_thread_self ();
  self->capture->clocks[self];
  return cudaSuccess;
}

namespace
{

/* Whether the stream that the capture began on goes on after all others. */
bool
is_joined (const Graph &graph)
{
  const Clock &known = graph.clocks.at (graph.origin);

  for (const auto &[stream, clock] : graph.clocks)
    if (stream->number < clock.at.size ()
        && !known.knows (stream->number, clock.at[stream->number]))
      return false;
  return true;
}

}

cudaError_t
cudaStreamEndCapture (cudaStream_t stream, cudaGraph_t *out)
{
  Lock lock;
  Stream *self = stream_of (stream);
  std::shared_ptr<Graph> graph = self != nullptr ? self->capture : nullptr;

  *out = nullptr;
  if (graph == nullptr || graph->origin != self)
    return result (self == nullptr ? cudaErrorInvalidResourceHandle
                                   : cudaErrorStreamCaptureUnmatched);
  for (const auto &[captured, clock] : graph->clocks)
    captured->capture = nullptr;
  const bool is_whole = is_joined (*graph);
  if (graph->is_invalid || !is_whole)
    graph->nodes.clear ();
  if (graph->is_invalid)
    return result (cudaErrorStreamCaptureInvalidated);
  if (!is_whole)
    return result (cudaErrorStreamCaptureUnjoined);
  graph->handles++;
  *out = new CUgraph_st{ graph };
  made (*out, "graph");
  return result (cudaSuccess);
}

cudaError_t
cudaStreamIsCapturing (cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
  Lock lock;
  Stream *self = stream_of (stream);

  if (self == nullptr)
    return result (cudaErrorInvalidResourceHandle);
  *out = self->capture == nullptr    ? cudaStreamCaptureStatusNone
         : self->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t
cudaGraphInstantiate (cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  graph->graph->handles++;
  *out = new CUgraphExec_st{ graph->graph, {} };
  for (const auto &[stream, clock] : graph->graph->clocks)
    {
      Stream *own = make_stream (stream->device, cudaStreamNonBlocking, stream->priority);

      own->is_of_graph = true;
      (*out)->streams[stream->number] = own;
    }
  made (*out, "graph to launch");
  return cudaSuccess;
}

namespace
{

/* Ops of a graph, in the order they were captured in: those of several ranks go on side by side. */
std::vector<Watched *>
watched_in (const Graph &graph)
{
  std::vector<Watched *> all;
  std::set<Watched *> known;

  for (const Node &node : graph.nodes)
    if (node.watched != nullptr && known.insert (node.watched.get ()).second)
      all.push_back (node.watched.get ());
  return all;
}

}

cudaError_t
cudaGraphLaunch (cudaGraphExec_t exec, cudaStream_t stream)
{
  Lock lock;
  cudaError_t error;
  Clock begin;

  if (fails (&error))
    return error;
  Stream *self = stream_of (stream);
  if (self == nullptr || self->capture != nullptr)
    return result (self == nullptr ? cudaErrorInvalidResourceHandle : cudaErrorNotSupported);
  run (self, "graph", "", self->number, [] (Op &) { return cudaSuccess; });
  begin.join (self->clock);
  for (const auto &[number, own] : exec->streams)
    begin.join (own->clock);
  for (const auto &[number, own] : exec->streams)
    own->clock.join (begin);
  std::vector<Clock> recorded (exec->graph->recorded.size ());
  const std::vector<Watched *> ops = watched_in (*exec->graph);
  for (Watched *op : ops)
    watch_again (*op);
  for (const Node &node : exec->graph->nodes)
    {
      Stream *own = exec->streams[node.stream];

      if (node.kind == Node::WAIT)
        own->clock.join (recorded[node.slot]);
      else if (node.kind == Node::RECORD)
        recorded[node.slot] = own->clock;
      else if (node.kind == Node::APART && error == cudaSuccess)
        {
          unlock_runtime ();
          error = node.apart (own);
          lock_runtime ();
        }
      else if (error == cudaSuccess)
        {
          const std::shared_ptr<Watched> before = watch (node.watched);

          error = run (own, node.name, node.details, node.stream, node.work);
          watch (before);
        }
      if (own->is_stalled) /* nothing behind it ends */
        {
          self->behind = own;
          break;
        }
    }
  for (const auto &[number, own] : exec->streams)
    self->clock.join (own->clock);
  for (const Watched *op : ops)
    if (error == cudaSuccess && self->behind == nullptr)
      check_whole (*op);
  return result (error);
}

gboolean
fake_order_is_captured (cudaStream_t stream)
{
  Lock lock;

  return is_capturing (stream);
}

void
fake_order_keep (cudaStream_t stream, const char *name, FakeOrderWork work, const void *closure,
                 size_t bytes, void (*gone) (void *closure))
{
  Lock lock;
  auto forget = [gone] (void *copy) {
    gone (copy);
    g_free (copy);
  };
  std::shared_ptr<void> copy (g_memdup2 (closure, bytes), forget);
  auto apart = [=] (Stream *own) { return work (own, copy.get ()); };

  add_node (stream_of (stream), { Node::APART, 0, 0, name, "", nullptr, apart });
}

cudaError_t
cudaGraphExecDestroy (cudaGraphExec_t exec)
{
  Lock lock;

  if (!fake_order_gone (exec, "graph to launch"))
    return result (cudaErrorInvalidValue);
  if (--exec->graph->handles == 0)
    exec->graph->nodes.clear ();
  delete exec;
  return result (cudaSuccess);
}

cudaError_t
cudaGraphDestroy (cudaGraph_t graph)
{
  Lock lock;

  if (!fake_order_gone (graph, "graph"))
    return result (cudaErrorInvalidValue);
  if (--graph->graph->handles == 0)
    graph->graph->nodes.clear ();
  delete graph;
  return result (cudaSuccess);
}
