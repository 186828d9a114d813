-- What a delivery that does not arrive costs: its lock at once (Q18), and the subscription when no later one can arrive or
-- too many in a row did not (P30).
local bounces = {}

function bounces.count(subid, gone)
  local subscriber = subscriptions.get(subid)
  if not subscriber then return end
  subscriber.bounces = subscriber.bounces + 1
  subscriptions.put(subscriber)
  if gone or subscriber.bounces >= tonumber(arg.max_bounces) then
    call.ending_ended[#call.ending_ended + 1] = {subscriber.jid, subscriber.pool or ''}
    -- Who is not reached by one of its subscriptions is reached by none.
    local room = leave.CHUNK
    for _, each in ipairs(names.family(subid, subscriber.pool)) do
      leave.remove(each, true, 'gone')
      local _, gone_back = leave.release(each, 'bounced', 'gone', room)
      room = room - gone_back
    end
  end
end

function bounces.take(flight, reason, gone)
  ending.release(flight, 'bounced', {reason = reason})
  writes.flush()
  bounces.count(flight.subid, gone)
end
