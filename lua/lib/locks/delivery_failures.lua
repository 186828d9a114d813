-- Handles a delivery that did not arrive: its lock ends at once (Q18). The subscription ends when no later delivery can arrive, or when
-- too many in a row did not (P30).
local delivery_failures = {MOST = 3}

function delivery_failures.count(subid, gone)
  local subscriber = subscriptions.get(subid)
  if not subscriber then return end
  subscriber.bounces = subscriber.bounces + 1
  subscriptions.put(subscriber)
  if gone or subscriber.bounces >= delivery_failures.MOST then
    notices.tell({'unsubscribed', subscriber.jid})
    -- A JID that one of its subscriptions cannot reach is reached by none.
    local room = unsubscribing.CHUNK
    for _, each in ipairs(subscription_ids.family(subid)) do
      unsubscribing.remove(each, true, 'gone')
      local _, gone_back = unsubscribing.release(each, 'bounced', 'gone', room)
      room = room - gone_back
    end
  end
end

-- Ends the locks of one delivery, which counts as one however many items it has. Where nobody is, nobody has begun; else an item may be
-- the cause, so each has lost an attempt. Those of a subscriber of a collection are counted there.
function delivery_failures.end_locks(flights, reason, gone)
  for _, flight in ipairs(flights) do
    lock_end.release(flight, 'bounced', {reason = reason, untried = gone and not worker_deaths.bounced(flight)})
  end
  write_buffer.flush()
  local reference = flights[1].reference
  if reference then reference.how = gone and 'gone' or 'bounced' else delivery_failures.count(flights[1].subid, gone) end
end
