-- The last act of every operation that may hand items out: settle credit, dispatch, save, answer.
-- NEEDS:
--- @include partition sent ending dispatch due handover lending
local finish = {}

-- Answers {'ok', results, deliveries, notices, handovers, next due ms or 0, 1 when more can be dispatched at once, token,
-- what there is to say of credit in a node of several partitions}.
function finish.reply(results, notices, hint)
  sent.mark()
  ending.settle()
  lending.yield()
  local deliveries, more = dispatch.run(hint)
  partition.save()
  return {'ok', results, deliveries, notices, handover.made, due.next(), more, partition.token,
    lending.report()}
end
