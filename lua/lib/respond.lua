-- Replies of operations on a partition: {'ok', results, deliveries, notices, 1 when entries of the outbox are due, next due ms or 0, 1 when
-- more can be done at once, token}. Lists that are empty may be false. The constants are the places of values that operations change.
local respond = {DELIVERIES = 3, DUE = 6, MORE = 7}
local NOTHING = {}

-- Returns false for an empty list, which takes Redis ten times as long to encode.
local function some(list)
  return #list > 0 and list
end

-- Returns the reply of an operation that hands out nothing new, with `due` and `more` other than 0, and with `besides`: a table that may
-- have `deliveries`.
function respond.results(results, due, more, besides)
  besides = besides or NOTHING
  return {'ok', results, besides.deliveries or false, some(call.notices_made), call.outbox_due, due or 0, more or 0, call.partition_token}
end

-- The last step of every operation that may hand items out: update turns, dispatch; with `receive` let those receive that have no turn, which
-- returns the results; wake others, serve log readers, trim, save, reply. A caller that cannot send gets no deliveries; if there is
-- something to send, the due time makes a frontend sweep at once.
function respond.make(results, hint, receive)
  lock_end.update_turns()
  local deliveries, more = dispatch.run(hint)
  if receive then results = receive(deliveries) end
  if call.partition_options.fair and call.fair_intake_behind then more = 1 end
  -- Asked here: most partitions use none of these.
  if budget.over() then
    more = 1
  else
    more = math.max(more, waiters.wake(hint))
    if call.partition_before.streams then more = math.max(more, log_delivery.run(deliveries)) end
    if call.partition_kept > 0 then more = math.max(more, trim.excess()) end
  end
  if call.partition_before.selects then selection_progress.save() end
  write_buffer.flush()
  if call.partition_options.collects then semaphore.tell() elseif more == 0 then asking.ask() end
  references.tell()
  partition.save()
  if call.expiry_perished > 0 then notices.tell({'perished', call.expiry_perished}) end
  local owed = call.dispatch_owed or call.partition_before.streams and not (call.caller_sends or call.caller_alone)
  local due = owed and call.partition_now or next_due.time()
  if call.partition_options.hand_out and ready_queue.waits() then due = hand_out_limits.next(due) end
  if call.partition_before.keyed then due = key_limits.next(due) end
  due = call.partition_options.collects and semaphore.next(due) or asking.next(due)
  return {'ok', some(results), some(deliveries), some(call.notices_made), call.outbox_due, due, more, call.partition_token}
end
