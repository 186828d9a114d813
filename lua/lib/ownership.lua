-- How ownership ends by its lease or by another's attach, and how the locks from before an attach end.
-- NEEDS: held
--- @include owner leave flights ending writes
local ownership = {CHUNK = 300}

-- Frees a partition whose owner has not been heard of for the time of its lease (EX16). What is over a part of its locks
-- ends by its own deadline.
function ownership.lapse()
  local who = owner.get()
  if not who or who.lease > partition.now then return end
  leave.remove(who.subid, false, 'lapsed')
  leave.release(who.subid, 'released', 'lapsed')
end

-- Ends locks from before the owner's attach, a bounded part at a time: until all have ended it is handed nothing, so that
-- what is found locked is one of them. The fence refuses those that are left.
function ownership.clear(reason)
  local who = owner.get()
  local places = redis.call('ZRANGE', key.held, 0, ownership.CHUNK - 1)
  for i, flight in ipairs(flights.at(places)) do
    if flight then
      ending.release(flight, 'released', {reason = reason})
    else
      writes.add('ZREM', key.held, places[i])
    end
  end
  writes.flush()
  who.clearing = redis.call('EXISTS', key.held) == 1
  owner.put(who)
end
