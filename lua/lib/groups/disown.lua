-- How an owner ceases to be one; `notices` are for those who are to be told.
-- CALL: notices = {}
local disown = {}

-- Frees the partition if it is this subscriber's. Its group's epoch begins anew, or is `kept` until the lease would have
-- ended: a connection that is lost is not closed by its owner (EX11). With a `reason` the owner is to be told (E28).
function disown.of(subid, kept, reason)
  local who = owner.get()
  if not who or who.subid ~= subid then return end
  local epoch = epochs.recorded(who.group)
  if reason then
    call.disown_notices[#call.disown_notices + 1] = {'lost', subscriptions.get(subid).jid, who.group, epoch, call.partition_fence, reason}
  end
  if kept then epochs.put(who.group, epoch, who.lease) else epochs.reset(who.group) end
  owner.drop()
end
