-- What a delivery that does not arrive costs: its lock at once (Q18), and the subscription when no later one can arrive or
-- too many in a row did not (P30).
-- NEEDS:
--- @include writes subscriptions ending leave
local bounces = {}

function bounces.take(flight, reason, gone)
  ending.release(flight, 'bounced', {reason = reason})
  writes.flush()
  local subscriber = subscriptions.get(flight.subid)
  if not subscriber then return end
  subscriber.bounces = subscriber.bounces + 1
  subscriptions.put(subscriber)
  if gone or subscriber.bounces >= tonumber(arg.max_bounces) then
    leave.remove(flight.subid, true, 'gone')
    ending.ended[#ending.ended + 1] = flight.jid
    leave.release(flight.subid, 'bounced', 'gone')
  end
end
