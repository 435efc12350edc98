// In the place of the chat page's previews: a static server does not send the policy that confines them.

export const previewButton = () => null;
