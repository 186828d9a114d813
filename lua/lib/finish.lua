-- The last act of every operation that may hand items out: settle credit, dispatch, let readers read, trim, save, answer.
-- A caller that cannot send is handed nothing, and where somebody has to be sent to, a frontend is to visit at once.
local finish = {}

-- Answers {'ok', results, deliveries, notices, handovers, next due ms or 0, 1 when more can be dispatched at once, token,
-- what there is to say of credit that several partitions share}.
function finish.reply(results, notices, hint)
  sent.mark()
  ending.settle()
  local deliveries, more = dispatch.run(hint)
  -- Asked here: most partitions have no use for these, and so need not build them.
  if budget.over() then
    more = 1
  else
    if call.partition_selects then more = math.max(more, matching.seek()) end
    if call.partition_streams then more = math.max(more, stream.run(deliveries)) end
    if call.partition_kept > 0 then more = math.max(more, trim.excess()) end
  end
  if call.partition_selects then behind.save() end
  writes.flush()
  local told = report.make()
  partition.save()
  for jid in pairs(call.dispatch_filled) do notices[#notices + 1] = {'filled', jid} end
  for _, who in ipairs(call.ending_ended) do notices[#notices + 1] = {'unsubscribed', who[1], who[2]} end
  if call.times_perished > 0 then notices[#notices + 1] = {'perished', call.times_perished} end
  local next_due = pulling.due() and call.partition_now or due.next()
  if credit.coordinates() then next_due = coordinator.next(next_due) end
  return {'ok', results, deliveries, notices, call.handover_made, next_due, more, call.partition_token, told}
end
