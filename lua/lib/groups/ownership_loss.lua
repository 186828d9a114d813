-- How an owner loses its partition; `notices` go to those who have to be told.
-- CALL: notices = {}
local ownership_loss = {}

-- Frees the partition if it is this subscriber's. Its group's epoch begins anew, or is `kept` until the lease would have
-- ended: a connection that is lost is not closed by its owner (EX11). With a `reason` the owner is to be told (E28).
function ownership_loss.end_of(subid, kept, reason)
  local who = partition_owner.get()
  if not who or who.subid ~= subid then return end
  local epoch = group_epochs.recorded(who.group)
  if reason then
    call.ownership_loss_notices[#call.ownership_loss_notices + 1] =
      {'lost', subscriptions.get(subid).jid, who.group, epoch, call.partition_fence, reason}
  end
  if kept then group_epochs.put(who.group, epoch, who.lease) else group_epochs.reset(who.group) end
  partition_owner.drop()
end
