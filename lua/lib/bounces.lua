-- What a delivery that does not arrive costs: its lock at once (Q18), and the subscription when no later one can arrive or
-- too many in a row did not (P30).
-- NEEDS:
--- @include writes subscriptions ending leave
local bounces = {}

function bounces.count(subid, gone)
  local subscriber = subscriptions.get(subid)
  if not subscriber then return end
  subscriber.bounces = subscriber.bounces + 1
  subscriptions.put(subscriber)
  if gone or subscriber.bounces >= tonumber(arg.max_bounces) then
    leave.remove(subid, true, 'gone')
    ending.ended[#ending.ended + 1] = {subscriber.jid, subscriber.pool or ''}
    leave.release(subid, 'bounced', 'gone')
  end
end

function bounces.take(flight, reason, gone)
  ending.release(flight, 'bounced', {reason = reason})
  writes.flush()
  bounces.count(flight.subid, gone)
end
