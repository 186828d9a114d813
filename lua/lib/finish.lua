-- The last act of every operation that may hand items out: settle credit, dispatch, let readers read, trim, save, answer.
-- A caller without a name (`frontend` empty) cannot send: it is handed nothing, and a frontend is to visit at once.
-- NEEDS:
--- @include partition sent ending dispatch stream trim due handover matching lending
local finish = {}

-- Answers {'ok', results, deliveries, notices, handovers, next due ms or 0, 1 when more can be dispatched at once, token,
-- what there is to say of credit in a node of several partitions}.
function finish.reply(results, notices, hint)
  sent.mark()
  ending.settle()
  lending.yield()
  local deliveries, more = dispatch.run(hint)
  more = math.max(more, matching.seek and matching.seek() or 0, stream.run(deliveries), trim.excess())
  partition.save()
  local next_due = arg.frontend == '' and partition.now or due.next()
  return {'ok', results, deliveries, notices, handover.made, next_due, more, partition.token,
    lending.report()}
end
