-- The last act of every operation that may hand items out: settle credit, dispatch, let readers read, trim, save, answer.
-- A caller that cannot send is handed nothing, and where somebody has to be sent to, a frontend is to visit at once.
-- NEEDS:
--- @include partition sent ending times dispatch stream trim due handover matching lending pulling
local finish = {}

-- Answers {'ok', results, deliveries, notices, handovers, next due ms or 0, 1 when more can be dispatched at once, token,
-- what there is to say of credit in a node of several partitions}.
function finish.reply(results, notices, hint)
  sent.mark()
  ending.settle()
  lending.yield()
  local deliveries, more = dispatch.run(hint)
  -- Asked here: most partitions have no use for these, and so need not build them.
  if partition.selects then more = math.max(more, matching.seek()) end
  if partition.streams then more = math.max(more, stream.run(deliveries)) end
  if partition.kept > 0 then more = math.max(more, trim.excess()) end
  partition.save()
  for jid, count in pairs(dispatch.filled) do notices[#notices + 1] = {'filled', jid, count} end
  if times.perished > 0 then notices[#notices + 1] = {'perished', times.perished} end
  local next_due = pulling.due() and partition.now or due.next()
  return {'ok', results, deliveries, notices, handover.made, next_due, more, partition.token,
    lending.report()}
end
